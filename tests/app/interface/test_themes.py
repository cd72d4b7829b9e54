"""The theme a person chooses is kept."""

from __future__ import annotations

from pathlib import Path

from app.config import load_config, write_setting
from app.interface.app import Specchat
from app.locations import Locations, locate
from app.runtime.model_thread import Model
from datastores.chats.history import History
from tests.app.interface.conftest import until
from tests.app.interface.scripted import ScriptedAssistant


def application(history: History, locations: Locations) -> Specchat:
    model = Model("small", "", ScriptedAssistant(history, []), lambda: None)
    theme = load_config(locations.settings).theme
    return Specchat(
        history,
        locations,
        lambda choice: model,
        theme,
        lambda chosen: write_setting(locations, "theme", chosen),
    )


async def test_a_chosen_theme_is_there_again_at_the_next_start(
    history: History, tmp_path: Path
) -> None:
    locations = locate(tmp_path / "data")
    app = application(history, locations)
    async with app.run_test() as pilot:
        assert not locations.settings.exists()
        app.theme = "specchat-light"
        await until(pilot, locations.settings.exists)
    app.leave()
    again = application(history, locations)
    assert again.theme == "specchat-light"


async def test_a_theme_that_there_is_not_is_named(history: History, tmp_path: Path) -> None:
    locations = locate(tmp_path / "data")
    write_setting(locations, "theme", "plaid")
    app = application(history, locations)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app._notifications)
        (told,) = app._notifications
        assert told.message.startswith("there is no theme “plaid”; Ctrl+P and")
        assert app.theme == "specchat-dark"
    app.leave()


async def test_settings_that_are_not_understood_are_left_alone(
    history: History, tmp_path: Path
) -> None:
    locations = locate(tmp_path / "data")
    app = application(history, locations)
    locations.create()
    locations.settings.write_text("them = 'x'\n")
    async with app.run_test() as pilot:
        app.theme = "specchat-light"
        await until(pilot, lambda: app._notifications)
    app.leave()
    assert locations.settings.read_text() == "them = 'x'\n"
