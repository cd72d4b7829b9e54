"""The top bar: the title and settings of the chat, the name and activity of the model."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.reactive import reactive
from textual.widgets import Static

from app.interface.themes import component_color
from app.interface.transcript.rows import MAX_TEXT_COLUMNS
from app.interface.wording import NEW_CHAT, TUNED, short_name
from app.sanitise import one_line

PRIVATE_LABEL = "private"
SEPARATOR = " · "
MIN_COLUMNS_TIME_LEFT = 60
"""Width from which background work is shown with the time left."""
MAX_NAME_COLUMNS = 40
MIN_TITLE_COLUMNS = 8
GAP = 2
"""Columns between the title and the model."""


class TopBar(Static):
    """One line over the transcript."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "topbar--dim",
        "topbar--accent",
        "topbar--warning",
    }

    chat: reactive[str] = reactive(NEW_CHAT)
    """Title of the chat."""

    private: reactive[bool] = reactive(False)
    """Whether the chat is private."""

    tuned: reactive[str] = reactive("")
    """The chat's own settings; empty without any."""

    model: reactive[str] = reactive("")
    """Name of the model; empty while there is none."""

    state: reactive[str] = reactive("")
    """What the model is doing for the turn in progress; empty between turns."""

    commands: reactive[int] = reactive(0)
    """Number of commands (`specchat ask`) that are being answered."""

    background: reactive[str] = reactive("")
    """What runs in the background, such as an import; empty without any."""

    idle: reactive[str] = reactive("")
    """What the model does while it is idle; empty without any."""

    learning: reactive[str] = reactive("")
    """What the draft model is learning or has learned; empty for nothing."""

    paused: reactive[str] = reactive("")
    """Note that idle work is paused; empty while it is not."""

    failed: reactive[bool] = reactive(False)
    """Whether `state` is a failure."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._title_cells = self._model_cells = range(0)

    def render(self) -> Text:
        state = "topbar--warning" if self.failed else "topbar--accent"
        dim, accent = (component_color(self, f"topbar--{kind}") for kind in ("dim", "accent"))
        work = self.background or self.idle or self.learning or self.paused
        if self.content_size.width < MIN_COLUMNS_TIME_LEFT:
            work = work.partition(SEPARATOR)[0]
        name = short_name(self.model, min(MAX_NAME_COLUMNS, self.content_size.width // 2))
        doing = self.state or phrase_commands(self.commands)
        parts = [(name, dim), (work, dim), (doing, component_color(self, state))]
        right = Text(SEPARATOR, style=dim).join(
            Text(one_line(text, 40), style=style) for text, style in parts if text
        )
        margin = max(0, (self.content_size.width - MAX_TEXT_COLUMNS) // 2)  # over the text column
        width = self.content_size.width - 2 * margin
        left = Text.assemble((f"{PRIVATE_LABEL} · " if self.private else "", accent))
        columns = max(MIN_TITLE_COLUMNS, width - left.cell_len - right.cell_len - GAP)
        left.append_text(self._left(columns, dim))
        self._title_cells = range(margin, margin + left.cell_len)
        left.pad_right(max(GAP, width - left.cell_len - right.cell_len))
        start = margin + left.cell_len
        self._model_cells = range(start, start + cell_len(name))
        return Text(" " * margin) + left + right

    async def on_click(self, event: events.Click) -> None:
        """Rename the chat on a click on its title, change the model on a click on its name."""
        place = event.get_content_offset(self)
        if place is not None and place.x in self._title_cells:
            await self.run_action("screen.command('chat.rename')")
        elif place is not None and place.x in self._model_cells:
            await self.run_action("screen.command('models')")

    def _left(self, width: int, dim: Style) -> Text:
        """The title, and the chat's own settings or, if they do not fit, only their mark."""
        title = Text(one_line(self.chat) or NEW_CHAT, style=Style(bold=True))
        own = Text()
        if self.tuned:
            own = Text(f"  {TUNED} {one_line(self.tuned)}", style=dim)
            if title.cell_len + own.cell_len > width:
                own = Text(f" {TUNED}", style=dim)
        title.truncate(width - own.cell_len, overflow="ellipsis")
        return Text.assemble(title, own)


def phrase_commands(commands: int) -> str:
    """What the model does for commands; empty for none."""
    if not commands:
        return ""
    return "answering a command" if commands == 1 else f"answering {commands} commands"
