"""The dialog that shows the cited passages of an answer and opens their files or chats.

Texts and paths come from files and are untrusted until sanitised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import OptionList, Static

from app.conversation.citations import MAX_PLACE, Citation, CitedText, Source, read_cited
from app.conversation.imported_chats import cited_chat
from app.interface.dialogs.basic import ListDialog
from app.interface.editor import edit
from app.interface.keymap import keymap_of
from app.interface.messages import ChatSelected, ImportedChatSelected
from app.interface.themes import component_color
from app.locations import Locations
from app.sanitise import clean, one_line
from datastores.errors import SpecchatError
from datastores.passages.chunks import Chunk

KEYS = "{cited.open} Open in editor · {cited.close} Close"
CHAT_KEYS = "{cited.open} Open chat · {cited.close} Close"
CLOSES = "{cited.close} Close"
CHANGED = "The file has changed since this answer. It now says:"
GONE = "This passage is no longer imported."
DELETED = "This chat was deleted."


class CitedPassages(ListDialog[ChatSelected | ImportedChatSelected | None]):
    """Shows the cited passages of one answer; closes with the chat to open, if any."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"cited--dim", "cited--warning"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "list('cursor_up')", "Previous passage", id="cited.up"),
        Binding("down", "list('cursor_down')", "Next passage", id="cited.down"),
        Binding("pageup", "scroll('page_up')", "Scroll up", id="cited.page-up"),
        Binding("pagedown", "scroll('page_down')", "Scroll down", id="cited.page-down"),
        Binding("enter", "open", "Open the file in $EDITOR, or the chat", id="cited.open"),
        Binding("escape", "dismiss", "Close", id="cited.close"),
    ]

    def __init__(self, locations: Locations, citations: Sequence[Citation], index: int = 0) -> None:
        """`index` is the citation to show first."""
        super().__init__()
        self._locations = locations
        self._citations = citations
        self._index = index
        self._texts: list[CitedText] = []

    def compose(self) -> ComposeResult:
        listed = OptionList(*map(self._entry, range(len(self._citations))), markup=False)
        listed.can_focus = False
        passage = VerticalScroll(Static(markup=False), can_focus=False)
        frame = Vertical(listed, passage)
        frame.border_title = "Citations of this answer"
        yield frame

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = min(self._index, len(self._citations) - 1)
        self._read()

    @work
    async def _read(self) -> None:
        try:
            self._texts = await asyncio.to_thread(read_cited, self._locations, self._citations)
        except SpecchatError as error:
            self.show_error(error)
            return
        if self.display:
            self._show()

    @on(OptionList.OptionHighlighted)
    def _show(self) -> None:
        cited = self._cited
        if cited is None:
            return
        self.query_one(Static).update(Text("\n").join(self._lines(cited)))
        self.query_one(VerticalScroll).scroll_home(animate=False)
        keys = CHAT_KEYS if self._own_chat or self._citations[self._row].chat else KEYS
        keys = keys if cited.chunk is not None else CLOSES
        self.query_one(Vertical).border_subtitle = keymap_of(self).fill(keys)

    @property
    def _row(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    @property
    def _cited(self) -> CitedText | None:
        """The text of the highlighted citation; None until it is read."""
        return self._texts[self._row] if self._texts else None

    @property
    def _own_chat(self) -> bool:
        """Whether the highlighted citation is of one of the person's own chats."""
        citation = self._citations[self._row]
        return isinstance(citation, Source) and bool(citation.owner)

    def _entry(self, index: int) -> Text:
        return Text(f"[{index + 1}] {one_line(self._citations[index].place, MAX_PLACE)}")

    def _lines(self, cited: CitedText) -> Iterator[Text]:
        dim, warning = (component_color(self, f"cited--{kind}") for kind in ("dim", "warning"))
        if cited.chunk is None or cited.changed:
            gone = DELETED if self._own_chat else GONE
            yield Text(gone if cited.chunk is None else CHANGED, warning)
        if cited.chunk is None:
            return
        if cited.chunk.heading:
            yield Text(one_line(cited.chunk.heading), dim)
        yield from _numbered(cited.chunk, dim)

    async def action_scroll(self, action: str) -> None:
        await self.query_one(VerticalScroll).run_action(action)

    @on(OptionList.OptionSelected)
    def action_open(self) -> None:
        cited = self._cited
        if cited is None or cited.chunk is None:
            return
        citation = self._citations[self._row]
        if self._own_chat:
            self.dismiss(ChatSelected(cited.own_chat))
        elif citation.chat:
            self.dismiss(ImportedChatSelected(cited_chat(citation, cited.key), citation.part))
        else:
            try:
                edit(self.app, citation.path, cited.chunk)
            except SpecchatError as error:
                self.show_error(error)


def _numbered(chunk: Chunk, dim: Style) -> Iterator[Text]:
    width = len(str(chunk.last_line))
    for number, line in enumerate(chunk.content.split("\n"), start=chunk.first_line):
        yield Text.assemble((f"{number:>{width}}  ", dim), clean(line))
