"""Every command can be run, found in the palette, and is on the help screen."""

from __future__ import annotations

from typing import Any

import pytest
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.command import CommandPalette
from textual.widgets import OptionList, Static
from textual.worker import Worker

from app.interface.commands.command import Command
from app.interface.commands.help import NO_MATCH, PANEL_TITLE, Help
from app.interface.commands.table import COMMANDS, RUN
from app.interface.draft_origins import ORIGINS
from app.interface.keymap import UNBOUND
from app.interface.screen import ChatScreen
from tests.app.interface.conftest import Make, Stage, ask, until


def test_every_command_does_something_and_has_its_own_key_and_name() -> None:
    assert set(RUN) == {command.id for command in COMMANDS}
    keys = [command.key for command in COMMANDS if command.key != UNBOUND]
    assert len(set(keys)) == len(keys)
    assert len({command.id for command in COMMANDS}) == len(COMMANDS)


def test_no_default_key_is_one_that_terminals_send_for_another() -> None:
    keys = [key for command in COMMANDS for key in command.key.split(",")]
    letters = [key[-1] for key in keys if key.startswith("alt+") and len(key) == len("alt+x")]
    assert not [letter for letter in letters if f"\x1b{letter}" in ANSI_SEQUENCES_KEYS]


def working(stage: Stage) -> list[Worker[Any]]:
    """Running workers, except the endless check of watched folders."""
    endless = stage.app.chat_screen.watch_task._worker
    return [worker for worker in stage.app.workers if worker.is_running and worker is not endless]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.id)
async def test_every_command_can_be_run_in_an_empty_chat(stage: Make, command: Command) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await made.app.chat_screen.run_action(command.action)
        await until(pilot, lambda: not working(made))
    assert made.app.return_code in (None, 0)


async def test_copying(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "copy?")
        made.conversation.transcript.text_select_all()
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "cp -r source/ target/" in made.app.clipboard)


async def test_help_explains_the_panel_and_names_every_key(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("f1")
        assert isinstance(made.app.screen, Help)
        page = str(made.app.screen.query_one(Static).content)
        assert page.startswith(PANEL_TITLE)
        for _, commands in made.app.keymap.by_scope():
            for _, keys, title in commands:
                assert f"{keys or '–'} ".ljust(20) + title in page
        words = " ".join(page.split())
        assert all(origin.meaning in words for origin in ORIGINS.values())
        assert "chat.find" not in page, "names of settings stand in app/interface/README.md"
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatScreen)


async def test_typing_filters_the_keys_of_the_help(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("f1")
        await pilot.press(*"ctrl search")
        page = made.app.screen.query_one(Static)
        await until(pilot, lambda: str(page.content).count("Ctrl+F") == 1)
        assert PANEL_TITLE not in str(page.content)
        await pilot.press("ctrl+u", *"/imports")
        await until(pilot, lambda: "/imports" in str(page.content))
        await pilot.press(*"xyz")
        await until(pilot, lambda: str(page.content) == NO_MATCH)
        await pilot.press("enter")
        assert isinstance(made.app.screen, ChatScreen)


async def test_the_palette_lists_every_command_and_runs_it(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(120, 60)) as pilot:
        await pilot.press("ctrl+p")
        assert isinstance(made.app.screen, CommandPalette)
        listed = made.app.screen.query_one(OptionList)
        await until(pilot, lambda: listed.option_count == len(COMMANDS) - 1)
        await pilot.press(*"colour words")
        await until(pilot, lambda: listed.option_count == 1)
        await pilot.press("enter")
        await until(pilot, lambda: made.conversation.transcript.origins_highlighted)
