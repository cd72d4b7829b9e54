"""The import screen: a box for paths, how the import stands, and what was skipped.

Owns its widgets and keys. The import itself belongs to `imports_run.py` and goes on when this is
closed. Folders are looked into beside the screen: one on a sleeping disk answers late.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Log, Static

from app.importing.path_completion import Completion, completion
from app.interface.commands.keymap import keys_of
from app.interface.imports.phrases import lines, skipped
from app.interface.imports.sources_screen import Sources
from app.interface.imports.tasks import Forgetting, Importing
from app.interface.panel.phrases import wrapped
from app.interface.text_inputs import Line
from app.interface.themes import ink_of, inks

BOX = "Path of a file, a folder or an archive"
KEYS = (
    "Enter imports · {importing.complete} completes · {importing.sources} lists what is imported"
    " · {importing.close} closes"
)
RUNNING = "{importing.stop} stops · {importing.close} closes, and the import goes on"
OFFERED = 3
"""Lines of names that a path may be completed to."""


class Imports(ModalScreen[None]):
    """Imports what is typed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = inks("imports")

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete the path", id="importing.complete", priority=True),
        Binding("s", "stop", "Stop the import; what is in stays", id="importing.stop"),
        Binding("f9", "sources", "What is imported", id="importing.sources"),
        Binding("up", "scroll('scroll_up')", "Up", id="importing.up"),
        Binding("down", "scroll('scroll_down')", "Down", id="importing.down"),
        Binding("pageup", "scroll('page_up')", "A page up", id="importing.page-up"),
        Binding("pagedown", "scroll('page_down')", "A page down", id="importing.page-down"),
        Binding("escape", "dismiss", "Close", id="importing.close"),
    ]

    def __init__(
        self, importing: Importing, forgetting: Forgetting, line: str | None = None
    ) -> None:
        """`line` stands in the box; None for what was imported last."""
        super().__init__()
        self._importing = importing
        self._forgetting = forgetting
        self._line = importing.state.line if line is None else line
        self._listed = 0

    def compose(self) -> ComposeResult:
        box = Line(self._line, BOX, selected=False)
        skipped = Log(auto_scroll=False)
        skipped.can_focus = False
        frame = Vertical(box, Static(classes="-names"), Static(classes="-state"), skipped)
        frame.border_title = "Import texts of yours"
        yield frame

    def on_mount(self) -> None:
        self._importing.changed = self.redraw
        self.call_after_refresh(self.redraw)

    def on_unmount(self) -> None:
        if self._importing.changed == self.redraw:
            self._importing.changed = None

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def box(self) -> Line:
        return self.query_one(Line)

    def redraw(self) -> None:
        """Show how the import stands."""
        state = self._importing.state
        if not self.query(".-state"):  # none is left when the program ends over it
            return
        told = self.query_one(".-state", Static)
        told.update(Text("\n").join(lines(state, told.content_size.width, ink_of(self, "imports"))))
        if self.box.display == state.running:
            self.box.display = not state.running
            self._offer(Completion("", ()))
            self.set_focus(None if state.running else self.box)
        frame = self.query_one(Vertical)
        frame.border_subtitle = keys_of(self).fill(RUNNING if state.running else KEYS)
        frame.set_class(bool(state.failure), "-failed")
        self._list_skipped()

    def _list_skipped(self) -> None:
        """Name what was skipped as soon as no more will be."""
        state, log = self._importing.state, self.query_one(Log)
        names = 0 if state.running else sum(state.report.counts.values())
        self.query_one(Vertical).set_class(names > 0, "-tall")
        if names != self._listed:
            self._listed = names
            log.clear()
            log.write_lines(skipped(state.report) if names else [])
            log.scroll_home(animate=False)

    @on(Input.Changed)
    @work(exclusive=True)
    async def _typed(self, event: Input.Changed) -> None:
        """Offer what the path may go on with."""
        self._offer(await asyncio.to_thread(completion, event.value))

    def _offer(self, found: Completion) -> None:
        several = found.names if len(found.names) > 1 else ()
        told = wrapped("  ".join(several), self.box.content_size.width)
        if len(told) > OFFERED:
            told = [*told[: OFFERED - 1], f"… {len(several):,} in all"]
        names = self.query_one(".-names", Static)
        names.update(Text("\n".join(told)))
        names.display = bool(told)

    def action_complete(self) -> None:
        """Write what is certain of the path, between what was typed before Tab and after."""
        self.box.call_later(self._complete)

    async def _complete(self) -> None:
        found = await asyncio.to_thread(completion, self.box.value)
        if found.line:
            self.box.value = found.line
            self.box.cursor_position = len(found.line)

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        self._importing.begin(event.value)

    def action_stop(self) -> None:
        self._importing.stop()

    def action_sources(self) -> None:
        self.app.push_screen(Sources(self._importing, self._forgetting), self._again)

    def _again(self, path: str | None) -> None:
        """Write a source that is to be imported again into the box."""
        if path is not None:
            self.box.value = path
            self.box.cursor_position = len(path)

    def action_scroll(self, action: str) -> None:
        getattr(self.query_one(Log), f"action_{action}")()
