"""The help screen: every key, and what the acceptance panel means. Made from the bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.interface.commands import shown
from app.interface.sources import OWN, SOURCES

KEYS = 20
"""Columns of the keys."""

PANEL = (
    "The model writes some words at each step of its own. specchat drafts the words that are likely"
    " to come next, from the places below, and the model checks several at once: the answer is the"
    " same, only sooner. The panel compares with plain, the model writing each word alone, as"
    " measured on this machine."
)
FIGURES = (
    "F2 shows more, by source: the share of the answer's words, how many of its drafts the model"
    " kept, and how many it would have kept had every draft been checked."
)


class Help(ModalScreen[None]):
    """A page that any of its keys closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "Close"),
    ]

    def __init__(self, groups: Iterable[tuple[str, Iterable[BindingType]]]) -> None:
        super().__init__()
        self._groups = [(title, list(own)) for title, own in groups]

    def compose(self) -> ComposeResult:
        page = VerticalScroll(Static(Text("\n").join(self._lines()), markup=False))
        page.border_subtitle = "esc closes"
        yield page

    def _lines(self) -> Iterator[Text]:
        accent = Style(color=self.app.theme_variables["accent"])
        for title, bindings in self._groups:
            yield Text(title, style=Style(bold=True))
            for name, keys in keys_of(bindings):
                yield Text.assemble((f"{keys:<{KEYS}}", accent), name)
            yield Text()
        yield Text("What the panel shows", style=Style(bold=True))
        yield Text(PANEL)
        yield Text()
        yield Text(FIGURES)
        yield Text()
        dark = self.app.current_theme.dark
        for source in (*SOURCES.values(), OWN):
            color = Style(color=source.color(dark=dark), bold=True)
            label = f" {source.label}".ljust(KEYS - 1)
            yield Text.assemble((source.letter, color), label, source.meaning)


def keys_of(bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """What each binding does, and all its keys."""
    keys: dict[str, list[str]] = {}
    for binding in Binding.make_bindings(bindings):
        keys.setdefault(binding.description, []).append(shown(binding.key))
    return [(name, ", ".join(given)) for name, given in keys.items()]
