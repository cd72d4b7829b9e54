"""The list of imported sources: each can be imported again or deleted.

Owns the list and its keys. `app.importing.session` says what is known of a source,
`tasks.py` removes one from every store.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static

from app.importing.session import ListedSource
from app.interface.cells import keep_end
from app.interface.chat.chat_list import age
from app.interface.commands.keymap import keymap_of
from app.interface.dialogs.basic import Confirm, ListDialog, list_bindings
from app.interface.imports.status import SEPARATOR, counted
from app.interface.imports.tasks import DeletionTask, ImportTask
from app.interface.themes import component_color
from app.sanitise import tilde_path
from datastores.errors import SpecchatError

KEYS = (
    "{sources.again} Import again · {sources.watch} Watch · {sources.forget} Remove"
    " · {sources.close} Close"
)
CLOSES = "{sources.close} Close"
NOTHING = "No imports. Press {sources.import} to import your files."
READING = "loading…"
STOPPED_HALF_WAY = "incomplete"
BUSY = "An import is running. Try again when it is done."
AT_ONCE = "Another removal is running. Try again in a moment."


class SourcesScreen(ListDialog[str | None]):
    """Lists what was imported; closes with a path to import again, or None.

    The path is empty where the person still has to type it.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"sources--dim", "sources--warning"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "Import again", id="sources.again"),
        *list_bindings("sources"),
        Binding("w", "watch", "Watch it for changes, or stop", id="sources.watch"),
        Binding("delete", "forget", "Delete it completely", id="sources.forget"),
        Binding("f9", "dismiss('')", "Import other files", id="sources.import"),
        Binding("escape", "dismiss", "Close", id="sources.close"),
    ]

    def __init__(self, import_task: ImportTask, deletion_task: DeletionTask) -> None:
        super().__init__()
        self._import_task = import_task
        self._deletion_task = deletion_task
        self._sources: list[ListedSource] = []
        self._watching = asyncio.Lock()

    def compose(self) -> ComposeResult:
        listed = OptionList(markup=False)
        listed.can_focus = False
        frame = Vertical(Static(READING, markup=False), listed)
        frame.border_title = "Imported files"
        yield frame

    def on_mount(self) -> None:
        self._deletion_task.subscribe(self._read)
        self._read()

    def on_unmount(self) -> None:
        self._deletion_task.unsubscribe(self._read)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._list)

    @property
    def list_widget(self) -> OptionList:
        return self.query_one(OptionList)

    @work(exclusive=True)
    async def _read(self) -> None:
        await self._read_sources()

    async def _read_sources(self) -> None:
        try:
            self._sources = await asyncio.to_thread(self._deletion_task.sources)
        except SpecchatError as error:
            self.show_error(error)
            return
        if not self.display:
            return
        keys, static = keymap_of(self), self.query_one(Static)
        static.update(keys.fill(NOTHING))
        static.display = not self._sources
        self.query_one(Vertical).border_subtitle = keys.fill(KEYS if self._sources else CLOSES)
        self._list()

    def _list(self) -> None:
        """List the sources; the same row stays highlighted."""
        row = self.list_widget.highlighted or 0
        self.list_widget.clear_options()
        self.list_widget.add_options([self._prompt(source) for source in self._sources])
        self.list_widget.highlighted = min(row, len(self._sources) - 1) if self._sources else None

    def _prompt(self, listed: ListedSource) -> Text:
        """First line: the path and when it was imported; second line: what is in it."""
        dim, warning = (component_color(self, f"sources--{kind}") for kind in ("dim", "warning"))
        width = max(20, self.list_widget.scrollable_content_region.width - 2)
        when = (
            age(datetime.fromtimestamp(listed.record.at), datetime.now()) if listed.record else ""
        )
        path = keep_end(tilde_path(listed.source.path), width - len(when) - 2)
        line = Text.assemble((path, Style(bold=True)), no_wrap=True)
        line.pad_right(max(1, width - line.cell_len - len(when)))
        line.append(when, dim)
        if listed.source.path == self._deletion_task.path:
            return line.append("\nremoving…", warning)
        line.append(f"\n{SEPARATOR.join(_facts(listed))}", dim)
        return line if listed.whole else line.append(f"{SEPARATOR}{STOPPED_HALF_WAY}", warning)

    @property
    def _highlighted(self) -> ListedSource | None:
        row = self.list_widget.highlighted
        return None if row is None else self._sources[row]

    def action_again(self) -> None:
        if self._highlighted is not None:
            self.dismiss(self._highlighted.source.path)

    @work
    async def action_watch(self) -> None:
        """Follow the changes of the highlighted source from now on, or no longer.

        One change at a time: each looks at what the one before has stored.
        """
        if self._highlighted is None:
            return
        path = self._highlighted.source.path
        async with self._watching:
            watched = any(one.watched for one in self._sources if one.source.path == path)
            try:
                await self._import_task.watch(path, not watched)
            except SpecchatError as error:
                self.show_error(error)
            await self._read_sources()

    def action_forget(self) -> None:
        """Delete the highlighted source, if the person confirms it."""
        if self._highlighted is None:
            return
        source = self._highlighted.source
        if self._import_task.state.running or self._deletion_task.running:
            reason = BUSY if self._import_task.state.running else AT_ONCE
            self.notify(reason, severity="warning", markup=False)
            return
        question = f"Remove {tilde_path(source.path)}: {counted(source.documents, 'document')}?"

        def delete(confirmed: bool | None) -> None:
            if confirmed:
                self._deletion_task.begin(source.path)

        self.app.push_screen(Confirm(question, "Remove"), delete)


def _facts(listed: ListedSource) -> list[str]:
    about = "" if listed.counted else "about "
    return [
        counted(listed.source.documents, "document"),
        about + counted(listed.tokens, "token"),
        " and ".join(listed.source.kinds),
        *(["watched"] if listed.watched else []),
    ]
