"""Slash commands are completed, run or refused; a message can begin with a slash."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from app.interface.chat.suggestions import Suggestions
from app.interface.commands.help import Help
from app.interface.imports.import_screen import ImportScreen
from app.interface.models.picker import ModelPicker
from app.locations import ModelFolders
from datastores.chats.history import History
from tests.app.interface.conftest import (
    PLAIN,
    SIZES,
    Compare,
    Make,
    answered,
    ask,
    burst,
    notices,
    ready,
    suggested,
    until,
)
from tests.app.models.gguf_files import write_gguf


async def test_commands_are_completed_and_run(stage: Make, history: History) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        prompt = made.conversation.prompt
        await ask(pilot, made, "one")
        await pilot.press("/")
        assert suggested(made)[:2] == ["/help", "/model"]
        await pilot.press(*"ren", "tab")
        assert prompt.text == "/rename "
        assert not prompt.suggestions.display
        await pilot.press(*"A new title", "enter")
        await until(pilot, lambda: history.chats()[0].title == "A new title")
        assert prompt.text == ""
        await pilot.press(*"/he", "enter")
        await until(pilot, lambda: isinstance(made.app.screen, Help))
        await pilot.press("escape", *"/import ~/notes", "enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportScreen))
        assert made.app.screen.query_one("LineInput").value == "~/notes"  # type: ignore[attr-defined]
        await pilot.press("escape", *"/mod", "down", "up", "enter")
        await until(pilot, lambda: isinstance(made.app.screen, ModelPicker))
        await pilot.press("escape", *"/system Be brief.", "enter")
        await until(pilot, lambda: history.chats()[0].system == "Be brief.")
        await pilot.press(*"/rename")
        await burst(pilot, *" Again", "enter")
        await until(pilot, lambda: history.chats()[0].title == "Again")
        await pilot.press(*"/new", "enter")
        await until(pilot, lambda: made.conversation.chat is None)
    assert made.assistant.asked == ["one"]


async def test_names_of_models_are_completed(stage: Make, others: ModelFolders) -> None:
    for name in ("one", "two", "ev\x1b[2Jil"):
        write_gguf(others.lm_studio[0] / "org" / name / f"{name}-Q8_0.gguf")
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"/model ")
        await until(pilot, lambda: suggested(made) == ["built-in", "org/one:Q8_0", "org/two:Q8_0"])
        await pilot.press(*"tw q8")
        await until(pilot, lambda: suggested(made) == ["org/two:Q8_0"])
        await pilot.press("tab")
        assert made.conversation.prompt.text == "/model org/two:Q8_0"
        await pilot.press("enter")
        await until(pilot, lambda: "Switched to org/two:Q8_0" in notices(made))


async def test_a_suggestion_is_clicked_or_dismissed(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"/")
        await until(pilot, lambda: made.conversation.query_one(Suggestions).size.height)
        await pilot.click(Suggestions, offset=(4, 0))
        await until(pilot, lambda: isinstance(made.app.screen, Help))
        await pilot.press("escape", *"/mo", "escape")
        prompt = made.conversation.prompt
        assert not prompt.suggestions.display
        assert prompt.text == "/mo"
        await pilot.press("d")
        assert not prompt.suggestions.display


async def test_an_unknown_command_is_refused_with_the_nearest_one(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"/impot x", "enter")
        await until(pilot, lambda: notices(made))
        assert "No command /impot. Did you mean /import?" in notices(made)[0]
        assert made.conversation.prompt.text == "/impot x"
        made.conversation.prompt.clear()
        await pilot.press(*"/pin 3", "enter")
        await until(pilot, lambda: "takes no argument" in notices(made)[-1])
        made.conversation.prompt.clear()
        await pilot.press(*"/export pdf", "enter")
        await until(pilot, lambda: "json or md" in notices(made)[-1])
        assert made.assistant.asked == []


async def test_a_message_can_begin_with_a_slash(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"//usr is what?", "enter")
        await until(pilot, lambda: made.assistant.asked == ["/usr is what?"])
        await answered(pilot, made)
        await pilot.press("up")
        assert made.conversation.prompt.text == "//usr is what?"
        await pilot.press("down", "ctrl+t")
        assert made.conversation.prompt.text == "//usr is what?"
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked == ["/usr is what?"] * 2)


async def test_another_model_is_loaded_by_its_path(stage: Make, tmp_path: Path) -> None:
    made = stage()
    (tmp_path / "other.gguf").touch()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*f"/model {tmp_path}/other.gguf", "enter")
        await until(pilot, lambda: made.conversation.topbar.model == "other")
        await pilot.press(*"/model nowhere", "enter")
        await until(pilot, lambda: any("nowhere" in notice for notice in notices(made)))
        assert made.conversation.topbar.model == "other"


@pytest.mark.parametrize("size", SIZES)
def test_the_commands(stage: Make, snap_compare: Compare, size: tuple[int, int]) -> None:
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("/", "down")
        await pilot.pause()

    assert snap_compare(made.app, terminal_size=size, run_before=act)
