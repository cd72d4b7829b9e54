"""The interface's beginning and end: opens the history, runs the application, lets go of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import ClassVar

from textual.app import App

from app.assistant import Assistant
from app.config import load_config
from app.engine import load
from app.interface.palette import CommandsProvider
from app.interface.screen import ChatScreen
from app.interface.talk import Model
from app.interface.themes import DARK, THEMES, own_variables
from app.locations import Locations, locate
from app.options import Options
from datastores.history import History

HERE = Path(__file__).parent


class Specchat(App[None]):
    """The application: styles, themes and the palette. What it does stands in its screen."""

    TITLE = "specchat"
    CSS_PATH: ClassVar[list[str | PurePath]] = sorted(HERE.glob("*.tcss"))
    COMMANDS = {CommandsProvider}  # noqa: RUF012

    def __init__(
        self, history: History, open_model: Callable[[], Model], theme: str = DARK.name
    ) -> None:
        super().__init__()
        for own in THEMES:
            self.register_theme(own)
        self.theme = theme if theme in self.available_themes else DARK.name
        # Nothing moves by itself: an animation costs the processor that the model needs.
        self.animation_level = "none"
        self._screen = ChatScreen(history, open_model)

    def get_default_screen(self) -> ChatScreen:
        return self._screen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return own_variables(dark=self.current_theme.dark)

    def leave(self) -> None:
        """After `run`: let the model go."""
        self._screen.conversation.talk.leave()


def run(options: Options) -> None:
    """Run the interface until the person quits.

    Raises:
        StoreError, InputError: the data or the configuration cannot be used; nothing was shown yet.
    """
    locations = locate(options.data_dir)
    locations.create()
    config = load_config(locations.settings)
    history = History.open(locations.history)
    app = Specchat(history, lambda: open_model(options, locations, history), config.theme)
    try:
        app.run()
    finally:
        app.leave()
        history.close()


def open_model(options: Options, locations: Locations, history: History) -> Model:
    """Load the model the person chose."""
    engine = load(options, locations)
    return Model(engine.name, Assistant(engine, history), engine.save)
