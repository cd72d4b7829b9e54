"""The line of keys: it applies to the situation, is clickable, and fits the screen."""

from __future__ import annotations

import pytest

from app.interface.commands import key_hints
from app.interface.commands.help import Help
from app.interface.commands.key_hints import Hints, KeyHints
from app.interface.keymap import Keymap
from app.interface.scopes import SCOPES
from tests.app.interface.conftest import SCRIPT, Make, Stage, ask, ready, send, until
from tests.app.interface.scripted import Script

MOMENTS = {
    name: value for name, value in vars(key_hints).items() if name.isupper() and name != "GAP"
}


def line(stage: Stage) -> str:
    return stage.app.chat_screen.query_one(KeyHints).render().plain


@pytest.mark.parametrize("hints", MOMENTS.values(), ids=MOMENTS)
def test_hints_are_of_bindings_and_fit_a_small_terminal(hints: Hints) -> None:
    keymap = Keymap(SCOPES)
    shown = [f"{keymap.fill('{' + name + '}')} {label}" for name, label in hints]
    assert len(key_hints.GAP.join(shown)) <= 80 - 4
    assert 4 <= len(shown) <= 5


async def test_they_follow_the_moment(stage: Make) -> None:
    made = stage(SCRIPT, Script(SCRIPT.passes, holds=True))
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        assert "F9 Import" in line(made)
        await ask(pilot, made, "first?")
        await until(pilot, lambda: "Ctrl+R Regenerate" in line(made))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "Esc Cancel" in line(made))
        await pilot.press("escape")
        await until(pilot, lambda: "Ctrl+R Regenerate" in line(made))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "R Rename" in line(made))
        await pilot.press("escape")
        await send(pilot, made, "second?")
        await until(pilot, lambda: "Esc Stop" in line(made))
        await pilot.press("escape")
        await until(pilot, lambda: "Ctrl+R Regenerate" in line(made))


async def test_a_click_does_what_the_key_does(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        hints = made.app.chat_screen.query_one(KeyHints)
        at = line(made).index("F1") + 3
        await pilot.click(hints, offset=(at + hints.styles.padding.left, 0))
        await until(pilot, lambda: isinstance(made.app.screen, Help))


async def test_keys_that_were_taken_away_are_left_out(stage: Make) -> None:
    made = stage(keys={"models": "", "help": "f12"})
    async with made.app.run_test(size=(40, 12)) as pilot:
        await ready(pilot, made)
        assert "Models" not in line(made)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "F12 Help" in line(made))
