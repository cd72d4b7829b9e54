"""The help screen: an explanation of the panel, and a list of all keys that typing filters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.interface.draft_origins import MODEL_LABEL, ORIGINS
from app.interface.keymap import keymap_of
from app.interface.text_inputs import LineInput
from app.interface.themes import component_color

KEY_COLUMNS = 20
"""Width of the column of keys, and of the labels of origins."""

MEANING_COLUMNS = 54
"""Width of an origin's meaning: with its label, it fills the frame at 80 columns."""

PANEL_TITLE = "What the panel shows"
PANEL_TEXT = (
    "A model normally writes one word at a time. specchat guesses several, and the model checks"
    " them in one step. Wrong guesses are dropped, so the answer is the same up to rounding, only"
    " sooner. The panel compares the speed with drafts and without, measured on this machine, and"
    " shows where the guessed words came from."
)
FIGURES_TEXT = (
    "{panel} shows details by origin: its share of the answer's words, the share of its checked"
    " drafts that were accepted, and the share that would be possible if every draft were checked."
)

DENSE_TEXT = (
    "Similar contexts: specchat remembers the model's state at each word. When a similar state"
    " returns, it suggests what came next last time. This needs about fifty answers. Imported texts"
    " and your questions are indexed while the model is idle, but not on battery."
)
FILTER_HINT = "Type to filter keys"
NO_MATCH = "No match."


class Help(ModalScreen[None]):
    """A scrolling page below a box that filters it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--accent", "help--dim"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,enter", "dismiss", "Close help", id="page.close"),
        Binding("up", "scroll('up')", "Scroll up", id="page.up"),
        Binding("down", "scroll('down')", "Scroll down", id="page.down"),
        Binding("pageup", "scroll('page_up')", "Page up", id="page.page-up"),
        Binding("pagedown", "scroll('page_down')", "Page down", id="page.page-down"),
    ]

    def __init__(self, slash_names: Mapping[str, str]) -> None:
        """`slash_names` are by command id."""
        super().__init__()
        self._slash_names = slash_names

    def compose(self) -> ComposeResult:
        text = Text("\n").join(self._lines(""))
        frame = Vertical(
            LineInput(placeholder=FILTER_HINT), VerticalScroll(Static(text, markup=False))
        )
        frame.border_title = "Help"
        frame.border_subtitle = keymap_of(self).fill("{page.close} Close")
        yield frame

    def action_scroll(self, direction: str) -> None:
        page = self.query_one(VerticalScroll)
        getattr(page, f"scroll_{direction}")(animate=False)

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        lines = list(self._lines(event.value))
        self.query_one(Static).update(Text("\n").join(lines) if lines else Text(NO_MATCH))
        self.query_one(VerticalScroll).scroll_home(animate=False)

    @on(Input.Submitted)
    def _close(self) -> None:
        self.dismiss()

    def _lines(self, typed: str) -> Iterator[Text]:
        """The page, or the keys that match all words `typed`."""
        words = typed.lower().split()
        if not words:
            yield from self._panel()
        yield from self._keys(words)

    def _panel(self) -> Iterator[Text]:
        yield Text(PANEL_TITLE, style=Style(bold=True))
        yield Text(PANEL_TEXT)
        yield Text()
        dark = self.app.current_theme.dark
        for origin in (*ORIGINS.values(), MODEL_LABEL):
            color = Style(color=origin.color(dark=dark), bold=True)
            label = f" {origin.label}".ljust(KEY_COLUMNS - 1)
            meaning = f"\n{' ' * KEY_COLUMNS}".join(textwrap.wrap(origin.meaning, MEANING_COLUMNS))
            yield Text.assemble((origin.letter, color), label, meaning)
        yield Text()
        yield Text(keymap_of(self).fill(FIGURES_TEXT))
        yield Text()
        yield Text(DENSE_TEXT)
        yield Text()

    def _keys(self, words: list[str]) -> Iterator[Text]:
        """Keys by scope; with `words`, those whose key, title or slash name has all of them."""
        accent, dim = (component_color(self, f"help--{kind}") for kind in ("accent", "dim"))
        for scope, commands in keymap_of(self).by_scope():
            slash = self._slash_names
            rows = [(keys, title, slash.get(name, "")) for name, keys, title in commands]
            shown = [row for row in rows if all(word in " ".join(row).lower() for word in words)]
            if not shown:
                continue
            yield Text(scope, style=dim + Style(bold=True))
            for keys, title, typed_as in shown:
                key = (f"{keys or '–'} ".ljust(KEY_COLUMNS), accent)
                yield Text.assemble(key, title, (f"  {typed_as}" * bool(typed_as), dim))
            yield Text()
