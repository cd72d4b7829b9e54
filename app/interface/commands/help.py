"""The help screen: every key with the id it is remapped by, and what the panel means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.interface.commands.keymap import keymap_of
from app.interface.draft_sources import MODEL_LABEL, SOURCES
from app.interface.themes import component_color

KEY_COLUMNS, TITLE_COLUMNS = 20, 31
"""Width of the column of keys, and of the column of titles."""

REMAPPING_TEXT = (
    "To change a key, add the name on the right to [keys] in the settings file; `specchat locate`"
    " prints its path."
)

PANEL_TEXT = (
    "A model normally writes one word at a time. specchat guesses several, and the model checks"
    " them in one step. Wrong guesses are dropped, so the answer is the same, only sooner. The"
    " panel compares the speed with drafts and without, measured on this machine, and shows where"
    " the guessed words came from."
)
FIGURES_TEXT = (
    "{panel} shows details by source: its share of the answer's words, the share of its checked"
    " drafts that were accepted, and the share that would be possible if every draft were checked."
)

DENSE_TEXT = (
    "Similar contexts: specchat remembers the model's state at each word. When a similar state"
    " returns, it suggests what came next last time. This needs about fifty answers. Imported texts"
    " and your questions are indexed while the model is idle, but not on battery."
)


class Help(ModalScreen[None]):
    """One scrolling page of text."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--accent", "help--dim"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "Close help", id="page.close"),
    ]

    def compose(self) -> ComposeResult:
        page = VerticalScroll(Static(Text("\n").join(self._lines()), markup=False))
        page.border_subtitle = keymap_of(self).fill("{page.close} Close")
        yield page

    def _lines(self) -> Iterator[Text]:
        yield from self._keys()
        yield Text("What the panel shows", style=Style(bold=True))
        yield Text(PANEL_TEXT)
        yield Text()
        yield Text(keymap_of(self).fill(FIGURES_TEXT))
        yield Text()
        yield Text(DENSE_TEXT)
        yield Text()
        dark = self.app.current_theme.dark
        for source in (*SOURCES.values(), MODEL_LABEL):
            color = Style(color=source.color(dark=dark), bold=True)
            label = f" {source.label}".ljust(KEY_COLUMNS - 1)
            yield Text.assemble((source.letter, color), label, source.meaning)

    def _keys(self) -> Iterator[Text]:
        accent, dim = (component_color(self, f"help--{kind}") for kind in ("accent", "dim"))
        for scope, commands in keymap_of(self).by_scope():
            yield Text(scope, style=Style(bold=True))
            for name, keys, title in commands:
                padded = f"{title:<{TITLE_COLUMNS - 1}} "
                yield Text.assemble((f"{keys or '–':<{KEY_COLUMNS}}", accent), padded, (name, dim))
            yield Text()
        yield Text(REMAPPING_TEXT)
        yield Text()
