"""The files attached to the next question, each shown as a chip with name, size and tokens.

Files are read in a thread; a click on a chip's ✕ removes it. `app.conversation.attachments` decides
what can be attached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static
from textual.worker import Worker

from app.conversation.attachments import Attachment, read_attachment
from app.interface.themes import component_color
from app.interface.transcript.entries import label
from app.interface.workers import start_worker
from app.sanitise import one_line
from datastores.errors import InputError

REMOVE = "✕"
_CHIP = "chip"
"""Key of style metadata: index of the chip that a click removes."""


@dataclass(eq=False, slots=True)
class Chip:
    """One attached file or folder.

    Attributes:
        name: shown until the file is read.
        attachment: None until the file is read.
        tokens: None until they are counted.
    """

    name: str
    attachment: Attachment | None = None
    tokens: int | None = None
    failed: bool = False

    @property
    def title(self) -> str:
        """`notes.txt · 1.2 KB · 310 tokens`."""
        if self.attachment is None:
            return f"{one_line(self.name, 40)} · reading…"
        tokens = "" if self.tokens is None else f" · {self.tokens:,} tokens"
        return label(self.attachment) + tokens


def chips_of(attachments: Iterable[Attachment]) -> list[Chip]:
    """Chips for files that are already read."""
    return [Chip(one.name, one) for one in attachments]


@dataclass
class AttachmentsChanged(Message):
    """A file was attached, read or removed."""


class AttachmentBar(Static):
    """Chips above the prompt; hidden while there are none."""

    COMPONENT_CLASSES = {"attachment-bar--dim", "attachment-bar--chip"}  # noqa: RUF012

    def __init__(self, show_error: Callable[[str], object]) -> None:
        super().__init__(markup=False)
        self.chips: Sequence[Chip] = ()
        self._show_error = show_error
        self._readers: list[Worker[bool]] = []

    def on_mount(self) -> None:
        self.display = False

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments that have been read."""
        return tuple(chip.attachment for chip in self.chips if chip.attachment is not None)

    @property
    def reading(self) -> str:
        """The name of a file that is still being read; empty if all are read."""
        return next((chip.name for chip in self.chips if chip.attachment is None), "")

    def set(self, chips: Iterable[Chip]) -> None:
        """Show `chips` instead, except those whose file turned out to be unreadable."""
        self._show([chip for chip in chips if not chip.failed])

    def put_back(self, chips: Iterable[Chip]) -> None:
        """Prepend the chips of a question that was not sent."""
        self._show([*chips, *self.chips])

    def attach(self, paths: Iterable[Path]) -> None:
        """Attach files and folders; an error names those that cannot be read."""
        for path in paths:
            chip = Chip(path.name or str(path))
            self._show([*self.chips, chip])
            self._readers.append(start_worker(self, self._read, chip, path))

    async def wait(self) -> bool:
        """Wait until every file is read; returns whether all could be read."""
        readers, self._readers = self._readers, []
        return all([await reader.wait() for reader in readers])

    def detach(self, index: int) -> None:
        """Remove the chip at `index`; -1 stands for the last one."""
        chips = list(self.chips)
        if chips:
            del chips[index]
            self._show(chips)

    def show_tokens(self) -> None:
        """Redraw the chips with newly counted tokens."""
        self.refresh(layout=True)

    async def _read(self, chip: Chip, path: Path) -> bool:
        try:
            chip.attachment = await asyncio.to_thread(read_attachment, path)
        except InputError as error:
            chip.failed = True
            self._show_error(str(error))
            self._show([one for one in self.chips if one is not chip])
            return False
        self._show(self.chips)
        return True

    def _show(self, chips: Sequence[Chip]) -> None:
        self.chips = tuple(chips)
        self.display = bool(chips)
        self.refresh(layout=True)
        self.post_message(AttachmentsChanged())

    def on_click(self, event: events.Click) -> None:
        index = event.style.meta.get(_CHIP, -1)
        if 0 <= index < len(self.chips):
            self.detach(index)

    def render(self) -> Text:
        """The chips side by side, wrapped to the width."""
        style = self.get_component_rich_style("attachment-bar--chip")
        dim = component_color(self, "attachment-bar--dim")
        width = max(20, self.content_size.width or self.size.width)
        text, column = Text(), 0
        for index, chip in enumerate(self.chips):
            title = one_line(chip.title, max(8, width - 5))
            size = Text(title).cell_len + 4
            if column and column + 1 + size > width:
                text.append("\n")
                column = 0
            elif column:
                text.append(" ")
                column += 1
            text.append(f" {title} ", style)
            text.append(f"{REMOVE} ", style + dim + Style.from_meta({_CHIP: index}))
            column += size
        return text
