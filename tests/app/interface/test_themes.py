"""The chosen theme is kept and applied everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.color import Color
from textual.pilot import Pilot

from app.config import load_config, write_setting
from app.interface.app import Specchat
from app.locations import Locations, locate
from app.runtime.model_thread import Model
from datastores.chats.history import History
from tests.app.interface.conftest import Compare, Stage, ask, ready, until
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


async def test_an_unknown_theme_is_named(history: History, tmp_path: Path) -> None:
    locations = locate(tmp_path / "data")
    write_setting(locations, "theme", "plaid")
    app = application(history, locations)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app._notifications)
        (told,) = app._notifications
        assert told.message.startswith("No theme is called “plaid”. Press Ctrl+P and")
        assert app.theme == "specchat-dark"
    app.leave()


async def test_invalid_settings_are_left_alone(history: History, tmp_path: Path) -> None:
    locations = locate(tmp_path / "data")
    app = application(history, locations)
    locations.create()
    locations.settings.write_text("them = 'x'\n")
    async with app.run_test() as pilot:
        app.theme = "specchat-light"
        await until(pilot, lambda: app._notifications)
    app.leave()
    assert locations.settings.read_text() == "them = 'x'\n"


async def test_every_theme_recolours_what_is_shown_in_both_directions(
    stage: Callable[..., Stage],
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await ask(pilot, made, "first")
        transcript = made.conversation.transcript
        names = sorted(made.app.available_themes)
        for name in [*names, *reversed(names)]:
            made.app.theme = name
            await pilot.pause()
            await pilot.pause()
            kinds = ("question-bar", "code", "code-keyword")
            expected = [
                transcript.get_component_styles(f"transcript--{kind}").rich_style.color
                for kind in kinds
            ]
            layout = transcript._layout
            assert layout is not None
            assert [layout.styles[kind].color for kind in kinds] == expected, name
            bars = [row.bar.style for row in transcript.rows if row.bar is not None]
            assert [bar.color for bar in bars if bar] == expected[:1], name


def test_a_switched_theme(
    stage: Callable[..., Stage], snap_compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.interface.chat.chat_list.age", lambda then, now: "09:41")
    monkeypatch.setattr("app.interface.chat.event_stream.monotonic", lambda: 1000.0)
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await ask(pilot, made, "first")
        made.app.theme = "specchat-light"
        await pilot.pause()
        await ask(pilot, made, "second")

    assert snap_compare(made.app, terminal_size=(160, 50), run_before=act)


@pytest.mark.parametrize("name", ["solarized-dark", "solarized-light", "nord", "specchat-dark"])
async def test_labels_are_never_brighter_than_the_text(
    stage: Callable[..., Stage], name: str
) -> None:
    made = stage(theme=name)
    async with made.app.run_test(size=(160, 40)) as pilot:
        await ready(pilot, made)
        bar = made.conversation.topbar
        styles = (bar.rich_style, bar.get_component_rich_style("topbar--dim"))
        text, dim = (Color.from_rich_color(style.color) for style in styles)
        background = bar.background_colors[1]
        contrasts = [abs(color.brightness - background.brightness) for color in (text, dim)]
        assert contrasts[1] < contrasts[0]
