"""The two themes, their additional colour variables, and styles from component classes.

`.tcss` files set the colours of component classes (`OWNER--KIND`).
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from textual.color import Color
from textual.theme import Theme
from textual.widget import Widget

from app.interface.draft_origins import OriginLabel

MUTED_SHARE = 0.6
"""Share of black or white in Textual's muted text colour."""
MUTED_FOREGROUND = 0.75
"""Share of the foreground in ours."""

KINDS = ("dim", "faint", "accent", "warning")
"""The styles of `PanelStyles`, in its order."""


@dataclass(frozen=True, slots=True)
class PanelStyles:
    """Styles for a `dark` or a light background, and the keys that the panel names.

    Attributes:
        hint: text at the end of the panel that names the key for details.
        larger: key of the model picker.
    """

    text: Style
    dim: Style
    faint: Style
    accent: Style
    warning: Style
    dark: bool
    hint: str = ""
    larger: str = ""

    def of(self, origin: OriginLabel) -> Style:
        """The style of an origin's colour."""
        return Style(color=origin.color(dark=self.dark))


def style_classes(owner: str) -> set[str]:
    """The component classes that `panel_styles` needs."""
    return {f"{owner}--{kind}" for kind in KINDS}


def panel_styles(
    widget: Widget, owner: str, text: Style | None = None, hint: str = "", larger: str = ""
) -> PanelStyles:
    """The current styles of `widget`, which has the component classes of `owner`."""
    dim, faint, accent, warning = (component_color(widget, f"{owner}--{kind}") for kind in KINDS)
    dark = widget.app.current_theme.dark
    return PanelStyles(text or Style(), dim, faint, accent, warning, dark, hint, larger)


def component_color(widget: Widget, component: str) -> Style:
    """The foreground colour of a component class, without its background."""
    return Style(color=widget.get_component_rich_style(component).color)


DARK = Theme(
    name="specchat-dark",
    primary="#5ec4b0",
    secondary="#7d8ea3",
    accent="#5ec4b0",
    warning="#e0b15e",
    error="#e5736f",
    success="#6fd19c",
    foreground="#d7dce2",
    background="#14171b",
    surface="#1b1f24",
    panel="#232830",
    dark=True,
    variables={
        "scrollbar": "#343a43",
        "scrollbar-hover": "#4a525d",
        "scrollbar-active": "#5ec4b0",
        "scrollbar-background": "#1b1f24",
        "scrollbar-background-hover": "#1b1f24",
        "scrollbar-background-active": "#1b1f24",
        "scrollbar-corner-color": "#1b1f24",
        "code-inline": "#e0b98a",
        "code-keyword": "#c79bf2",
        "code-string": "#9fd08c",
        "code-name": "#7ab8f5",
    },
)

LIGHT = Theme(
    name="specchat-light",
    primary="#0b7a6b",
    secondary="#5b6673",
    accent="#0b7a6b",
    warning="#9a6200",
    error="#b3261e",
    success="#11723d",
    foreground="#22272e",
    background="#fcfcfa",
    surface="#f1f1ed",
    panel="#e6e6e1",
    dark=False,
    variables={
        "scrollbar": "#d3d3cc",
        "scrollbar-hover": "#b9b9b0",
        "scrollbar-active": "#0b7a6b",
        "scrollbar-background": "#f1f1ed",
        "scrollbar-background-hover": "#f1f1ed",
        "scrollbar-background-active": "#f1f1ed",
        "scrollbar-corner-color": "#f1f1ed",
        "code-inline": "#8a4b12",
        "code-keyword": "#7a3fb5",
        "code-string": "#2c6e1f",
        "code-name": "#0b62b8",
    },
)

THEMES = (DARK, LIGHT)


def muted_variables(theme: Theme) -> dict[str, str]:
    """A muted text colour for themes in which Textual's would stand out more than normal text.

    Textual mixes it from black or white, regardless of the theme's foreground.
    """
    if theme.foreground is None or theme.background is None:
        return {}
    foreground, background = Color.parse(theme.foreground), Color.parse(theme.background)
    if foreground.ansi is not None:  # the terminal's own colours
        return {}
    muted = background.blend(background.get_contrast_text(1.0), MUTED_SHARE)
    if _contrast(muted, background) <= _contrast(foreground, background):
        return {}
    return {"text-muted": background.blend(foreground, MUTED_FOREGROUND).hex}


def _contrast(color: Color, background: Color) -> float:
    return abs(color.brightness - background.brightness)


def theme_variables(*, dark: bool) -> dict[str, str]:
    """Defaults of the additional variables, for other themes."""
    return (DARK if dark else LIGHT).variables
