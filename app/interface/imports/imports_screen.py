"""The list of imports, each of which can be imported again, renamed, watched or deleted."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import OptionList, Static

from app.figures import amount
from app.importing.session import ListedImport
from app.interface.cells import keep_end, keep_start
from app.interface.dialogs.basic import Confirm, InputDialog, ListDialog, list_bindings
from app.interface.imports.status import SEPARATOR
from app.interface.imports.tasks import DeletionTask, ImportTask
from app.interface.keymap import keymap_of
from app.interface.themes import component_color
from app.interface.wording import age
from app.sanitise import one_line, tilde_path
from datastores.errors import SpecchatError

KEYS = (
    "{imports.again} Import again · {imports.rename} Rename · {imports.watch} Watch"
    " · {imports.forget} Remove · {imports.close} Close"
)
CLOSES = "{imports.close} Close"
NOTHING = "No imports. Press {imports.import} to import your files."
TITLE = "Imported files"
PROGRAMS = TITLE + ", and {} to programs (specchat forget --programs)"
READING = "loading…"
STOPPED_HALF_WAY = "incomplete"
BUSY = "An import is running. Try again when it is done."
AT_ONCE = "Another removal is running. Try again in a moment."


class ImportsScreen(ListDialog[str | None]):
    """Lists the imports; closes with a path to import again, an empty one to type it, or None."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"imports--dim", "imports--warning"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "Import again", id="imports.again"),
        *list_bindings("imports"),
        Binding("n", "rename", "Rename it", id="imports.rename"),
        Binding("w", "watch", "Watch it for changes, or stop", id="imports.watch"),
        Binding("delete", "forget", "Delete it completely", id="imports.forget"),
        Binding("f9", "dismiss('')", "Import other files", id="imports.import"),
        Binding("escape", "dismiss", "Close", id="imports.close"),
    ]

    def __init__(self, import_task: ImportTask, deletion_task: DeletionTask) -> None:
        super().__init__()
        self._import_task = import_task
        self._deletion_task = deletion_task
        self._imports: list[ListedImport] = []
        self._watching = asyncio.Lock()

    def compose(self) -> ComposeResult:
        listed = OptionList(markup=False)
        listed.can_focus = False
        frame = Vertical(Static(READING, markup=False), listed)
        frame.border_title = TITLE
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
        await self._read_imports()

    async def _read_imports(self) -> None:
        try:
            self._imports = await asyncio.to_thread(self._deletion_task.imports)
            answers = await asyncio.to_thread(self._deletion_task.program_answers)
        except SpecchatError as error:
            self.show_error(error)
            return
        if not self.display:
            return
        if answers:
            self.query_one(Vertical).border_title = PROGRAMS.format(amount(answers, "answer"))
        keys, static = keymap_of(self), self.query_one(Static)
        static.update(keys.fill(NOTHING))
        static.display = not self._imports
        self.query_one(Vertical).border_subtitle = keys.fill(KEYS if self._imports else CLOSES)
        self._list()

    def _list(self) -> None:
        row = self.list_widget.highlighted or 0
        self.list_widget.clear_options()
        self.list_widget.add_options([self._prompt(one) for one in self._imports])
        self.list_widget.highlighted = min(row, len(self._imports) - 1) if self._imports else None

    def _prompt(self, listed: ListedImport) -> Text:
        dim, warning = (component_color(self, f"imports--{kind}") for kind in ("dim", "warning"))
        width = max(20, self.list_widget.scrollable_content_region.width - 2)
        when = (
            age(datetime.fromtimestamp(listed.record.at), datetime.now()) if listed.record else ""
        )
        name = keep_start(one_line(listed.stored.name), width - len(when) - 2)
        path = keep_end(tilde_path(listed.stored.path), width - len(when) - cell_len(name) - 4)
        line = Text.assemble((name, Style(bold=True)), (f"  {path}", dim), no_wrap=True)
        line.pad_right(max(1, width - line.cell_len - len(when)))
        line.append(when, dim)
        if listed.stored.path == self._deletion_task.path:
            return line.append("\nremoving…", warning)
        line.append(f"\n{SEPARATOR.join(_facts(listed))}", dim)
        return line if listed.whole else line.append(f"{SEPARATOR}{STOPPED_HALF_WAY}", warning)

    @property
    def _highlighted(self) -> ListedImport | None:
        row = self.list_widget.highlighted
        return None if row is None else self._imports[row]

    def action_again(self) -> None:
        if self._highlighted is not None:
            self.dismiss(self._highlighted.stored.path)

    def action_rename(self) -> None:
        if self._highlighted is not None:
            stored = self._highlighted.stored

            def keep(name: str | None) -> None:
                if name is not None:
                    self._rename(stored.path, name)

            self.app.push_screen(InputDialog("Rename import", stored.name), keep)

    @work
    async def _rename(self, path: str, name: str) -> None:
        try:
            await asyncio.to_thread(self._deletion_task.rename, path, name)
        except SpecchatError as error:
            self.show_error(error)
        await self._read_imports()

    @work
    async def action_watch(self) -> None:
        """Start or stop watching the highlighted import.

        One change at a time, since each depends on what the one before has stored.
        """
        if self._highlighted is None:
            return
        path = self._highlighted.stored.path
        async with self._watching:
            watched = any(one.watched for one in self._imports if one.stored.path == path)
            try:
                await self._import_task.watch(path, not watched)
            except SpecchatError as error:
                self.show_error(error)
            await self._read_imports()

    def action_forget(self) -> None:
        if self._highlighted is None:
            return
        stored = self._highlighted.stored
        if self._import_task.state.running or self._deletion_task.running:
            reason = BUSY if self._import_task.state.running else AT_ONCE
            self.notify(reason, severity="warning", markup=False)
            return
        question = f"Remove {one_line(stored.name)}: {amount(stored.documents, 'document')}?"

        def delete(confirmed: bool | None) -> None:
            if confirmed:
                self._deletion_task.begin(stored.path)

        self.app.push_screen(Confirm(question, "Remove"), delete)


def _facts(listed: ListedImport) -> list[str]:
    about = "" if listed.counted else "about "
    return [
        amount(listed.stored.documents, "document"),
        about + amount(listed.tokens, "token"),
        " and ".join(listed.stored.kinds),
        *(["watched"] if listed.watched else []),
    ]
