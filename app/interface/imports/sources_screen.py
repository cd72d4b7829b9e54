"""The list of what was imported, from which a source can be forgotten.

Owns the list and its keys. What is known of a source is `app.indexing.source_list`'s business;
taking it out of every store, `imports_forget.py`'s.
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
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from app.indexing.source_list import ListedSource
from app.interface.chat.chat_list import age
from app.interface.commands.keymap import keys_of
from app.interface.dialogs.confirm import Confirm
from app.interface.imports.phrases import SEPARATOR, at_home, counted
from app.interface.imports.tasks import Forgetting, Importing
from app.interface.themes import colour_of
from app.sanitise import one_line
from datastores.errors import SpecchatError

KEYS = "{sources.again} imports it again · {sources.forget} forgets it · {sources.close} closes"
CLOSES = "{sources.close} closes"
NOTHING = (
    "Nothing was imported yet: {sources.import} imports texts of yours, to draft answers from."
)
LOOKING = "looking…"
HALF = "stopped half-way"
BUSY = "an import is running: forget this when it is done"
AT_ONCE = "something else is just being forgotten: try again in a moment"


class Sources(ModalScreen[str | None]):
    """What was imported; closes with the path that is to be imported (again), or None.

    It is empty where the person still has to type it.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"sources--dim", "sources--warning"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "again", "Import it again", id="sources.again"),
        Binding("up", "list('cursor_up')", "Up", id="sources.up"),
        Binding("down", "list('cursor_down')", "Down", id="sources.down"),
        Binding("pageup", "list('page_up')", "A page up", id="sources.page-up"),
        Binding("pagedown", "list('page_down')", "A page down", id="sources.page-down"),
        Binding("delete", "forget", "Forget it, in every store", id="sources.forget"),
        Binding("f9", "dismiss('')", "Import other texts", id="sources.import"),
        Binding("escape", "dismiss", "Close", id="sources.close"),
    ]

    def __init__(self, importing: Importing, forgetting: Forgetting) -> None:
        super().__init__()
        self._importing = importing
        self._forgetting = forgetting
        self._sources: list[ListedSource] = []

    def compose(self) -> ComposeResult:
        listed = OptionList(markup=False)
        listed.can_focus = False
        frame = Vertical(Static(LOOKING, markup=False), listed)
        frame.border_title = "Imported texts"
        yield frame

    def on_mount(self) -> None:
        self._forgetting.changed = self._look
        self._look()

    def on_unmount(self) -> None:
        if self._forgetting.changed == self._look:
            self._forgetting.changed = None

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._list)

    @property
    def listed(self) -> OptionList:
        return self.query_one(OptionList)

    @work(exclusive=True)
    async def _look(self) -> None:
        try:
            self._sources = await asyncio.to_thread(self._forgetting.listed)
        except SpecchatError as error:
            self.notify(one_line(str(error), 400), severity="error", markup=False)
            return
        keys, static = keys_of(self), self.query_one(Static)
        static.update(keys.fill(NOTHING))
        static.display = not self._sources
        self.query_one(Vertical).border_subtitle = keys.fill(KEYS if self._sources else CLOSES)
        self._list()

    def _list(self) -> None:
        """List the sources; the one that was marked stays marked."""
        at = self.listed.highlighted or 0
        self.listed.clear_options()
        self.listed.add_options([self._drawn(source) for source in self._sources])
        self.listed.highlighted = min(at, len(self._sources) - 1) if self._sources else None

    def _drawn(self, listed: ListedSource) -> Text:
        """The path and when it was imported; below, what is in it."""
        dim, warning = (colour_of(self, f"sources--{kind}") for kind in ("dim", "warning"))
        width = max(20, self.listed.scrollable_content_region.width - 2)
        when = age(datetime.fromtimestamp(listed.note.at), datetime.now()) if listed.note else ""
        path = at_home(listed.source.path)
        room = width - len(when) - 2
        if len(path) > room:
            path = f"…{path[len(path) - room + 1 :]}"
        line = Text.assemble((path, Style(bold=True)), no_wrap=True)
        line.pad_right(max(1, width - line.cell_len - len(when)))
        line.append(when, dim)
        if listed.source.path == self._forgetting.path:
            return line.append("\nforgetting…", warning)
        line.append(f"\n{SEPARATOR.join(_figures(listed))}", dim)
        return line if listed.whole else line.append(f"{SEPARATOR}{HALF}", warning)

    @property
    def _marked(self) -> ListedSource | None:
        place = self.listed.highlighted
        return None if place is None else self._sources[place]

    def action_again(self) -> None:
        if self._marked is not None:
            self.dismiss(self._marked.source.path)

    def action_forget(self) -> None:
        """Forget the marked source, if the person is sure."""
        if self._marked is None:
            return
        source = self._marked.source
        hindrance = BUSY if self._importing.state.running else AT_ONCE * self._forgetting.running
        if hindrance:
            self.notify(hindrance, severity="warning", markup=False)
            return
        question = f"Forget {at_home(source.path)}: {counted(source.documents, 'document')}?"

        def confirmed(sure: bool | None) -> None:
            if sure:
                self._forgetting.begin(source.path)

        self.app.push_screen(Confirm(question), confirmed)

    async def action_list(self, action: str) -> None:
        await self.listed.run_action(action)


def _figures(listed: ListedSource) -> list[str]:
    about = "" if listed.counted else "about "
    return [
        counted(listed.source.documents, "document"),
        about + counted(listed.tokens, "token"),
        " and ".join(listed.source.kinds),
    ]
