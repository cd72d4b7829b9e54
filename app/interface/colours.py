"""The theme's colours, as the styles that lines are drawn with.

What they are stands in `.tcss` files, by component classes: `OWNER--KIND`.
"""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

from app.interface.ink import Ink

KINDS = ("dim", "faint", "accent", "warning")
"""Those of an `Ink`, in its order."""


def inks(owner: str) -> set[str]:
    """The component classes that `ink_of` needs."""
    return {f"{owner}--{kind}" for kind in KINDS}


def ink_of(widget: Widget, owner: str, text: Style | None = None, hint: str = "") -> Ink:
    """What `widget`, which has the component classes of `owner`, is drawn with now."""
    dim, faint, accent, warning = (colour_of(widget, f"{owner}--{kind}") for kind in KINDS)
    dark = widget.app.current_theme.dark
    return Ink(text or Style(), dim, faint, accent, warning, dark, hint)


def colour_of(widget: Widget, component: str) -> Style:
    """The colour of a component class, without its ground: that is the line's."""
    return Style(color=widget.get_component_rich_style(component).color)
