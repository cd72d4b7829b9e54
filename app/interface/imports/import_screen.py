"""The import screen: a box for paths, the progress of the import, and what was skipped.

The import continues when the screen is closed. Paths are completed in a thread, since a folder on a
sleeping disk takes seconds to read.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Log, Static

from app.importing.path_completion import PathCompletion, completion
from app.interface.dialogs.basic import ListDialog, list_bindings
from app.interface.imports.imports_screen import ImportsScreen
from app.interface.imports.status import detail_lines, status_lines
from app.interface.imports.tasks import DeletionTask, ImportTask
from app.interface.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.interface.themes import panel_styles, style_classes
from app.interface.wording import wrapped

BOX = "Path to a file, folder or archive"
KEYS = (
    "Enter Import · {importing.complete} Complete · {importing.imports} Imported files"
    " · {importing.close} Close"
)
RUNNING = "{importing.stop} Stop · {importing.close} Run in background"
MAX_NAME_LINES = 3
"""Maximum lines of possible completions."""


class ImportScreen(ListDialog[None]):
    """Imports the paths that are typed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = style_classes("imports")

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete path", id="importing.complete", priority=True),
        Binding("s", "stop", "Stop the import; keeps what was imported", id="importing.stop"),
        Binding("f9", "imports", "Imported files", id="importing.imports"),
        *list_bindings("importing", "scroll_up", "scroll_down"),
        Binding("escape", "dismiss", "Close", id="importing.close"),
    ]

    def __init__(
        self, import_task: ImportTask, deletion_task: DeletionTask, typed: str | None = None
    ) -> None:
        """`typed` is the initial text of the box, by default what was imported last."""
        super().__init__()
        self._import_task = import_task
        self._deletion_task = deletion_task
        self._initial = import_task.state.typed if typed is None else typed
        self._replaceable = typed is None and not import_task.state.error
        self._names_listed = 0

    def compose(self) -> ComposeResult:
        box = LineInput(self._initial, BOX, selected=self._replaceable)
        log = Log(auto_scroll=False)
        log.can_focus = False
        frame = Vertical(box, Static(classes="-names"), Static(classes="-state"), log)
        frame.border_title = "Import your files"
        yield frame

    def on_mount(self) -> None:
        self._import_task.subscribe(self.redraw)
        self.call_after_refresh(self.redraw)

    def on_unmount(self) -> None:
        self._import_task.unsubscribe(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    @property
    def list_widget(self) -> Log:
        return self.query_one(Log)

    @property
    def box(self) -> LineInput:
        return self.query_one(LineInput)

    def redraw(self) -> None:
        """Show the state of the import."""
        state = self._import_task.state
        if not self.query(".-state"):  # removed at shutdown
            return
        status, styles = self.query_one(".-state", Static), panel_styles(self, "imports")
        status.update(Text("\n").join(status_lines(state, status.content_size.width, styles)))
        if self.box.display == state.running:
            self.box.display = not state.running
            self.box.select_on_focus = not state.error  # a wrong path is edited, not replaced
            self._show_completions(PathCompletion("", ()))
            self.set_focus(None if state.running else self.box)
        frame = self.query_one(Vertical)
        frame.border_subtitle = keymap_of(self).fill(RUNNING if state.running else KEYS)
        frame.set_class(bool(state.error), "-failed")
        self._list_skipped()

    def _list_skipped(self) -> None:
        state, log = self._import_task.state, self.list_widget
        names = 0 if state.running else sum(state.report.counts.values()) + state.report.redacted
        self.query_one(Vertical).set_class(names > 0, "-tall")
        if names != self._names_listed:
            self._names_listed = names
            log.clear()
            log.write_lines(detail_lines(state.report) if names else [])
            log.scroll_home(animate=False)

    @on(Input.Changed)
    @work(exclusive=True)
    async def _typed(self, event: Input.Changed) -> None:
        found = await asyncio.to_thread(completion, event.value)
        if self.display:
            self._show_completions(found)

    def _show_completions(self, found: PathCompletion) -> None:
        names = found.names if len(found.names) > 1 else ()
        lines = wrapped("  ".join(names), self.box.content_size.width)
        if len(lines) > MAX_NAME_LINES:
            lines = [*lines[: MAX_NAME_LINES - 1], f"… {len(names):,} in all"]
        shown = self.query_one(".-names", Static)
        shown.update(Text("\n".join(lines)))
        shown.display = bool(lines)

    def action_complete(self) -> None:
        """Complete the path, in order with keys typed before and after Tab."""
        self.box.call_later(self._complete)

    async def _complete(self) -> None:
        found = await asyncio.to_thread(completion, self.box.value)
        if found.line:
            self.box.value = found.line
            self.box.cursor_position = len(found.line)

    @on(Input.Submitted)
    def _enter(self, event: Input.Submitted) -> None:
        self._import_task.begin(event.value)

    def action_stop(self) -> None:
        self._import_task.cancel()

    def action_imports(self) -> None:
        self.query_one(Vertical).display = False  # nothing shows through the list
        self.app.push_screen(ImportsScreen(self._import_task, self._deletion_task), self._type_path)

    def _type_path(self, path: str | None) -> None:
        self.query_one(Vertical).display = True
        self.redraw()
        if path is not None:
            self.box.value = path
            self.box.cursor_position = len(path)
