"""Switching the model keeps the chats and the typed text."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag

import pytest
from textual.pilot import Pilot

from app.config import load_config
from app.interface.chat.prompt import ASK_ANYTHING
from app.interface.models.picker import ModelPicker
from app.interface.screen import ChatScreen
from app.locations import ModelFolders
from app.models.discovery import embedded
from datastores.chats.history import History
from datastores.errors import ModelError
from engines.draft_tree import CHATS
from tests.app.interface.conftest import (
    PLAIN,
    Make,
    Stage,
    answered,
    ask,
    send,
    shown,
    type_in,
    until,
)
from tests.app.interface.models.picking import open_picker, type_name
from tests.app.interface.scripted import Script, passes_of
from tests.app.models.gguf_files import write_gguf

SLOW = Script(passes_of("one two three", [CHATS], 2), holds=True)
OTHER = "org/other:Q8_0"


def notices(made: Stage) -> list[str]:
    return [notification.message for notification in made.app._notifications]


async def choose(pilot: Pilot[None], made: Stage, typed: str) -> None:
    """Open the picker, and choose the first model that matches `typed`."""
    await open_picker(pilot, made)
    await type_name(pilot, made, typed)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(made.app.screen, ChatScreen))


@pytest.fixture
def other(others: ModelFolders) -> Path:
    """Another model's file."""
    return write_gguf(others.lm_studio[0] / "org" / "other" / "other-Q8_0.gguf")


async def test_another_model_answers_in_the_same_chat(
    stage: Make, history: History, other: Path
) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        chat = made.conversation.chat
        await choose(pilot, made, "other")
        await until(pilot, lambda: made.conversation.topbar.model == other.stem)
        await until(pilot, lambda: f"Switched to {OTHER}" in notices(made))
        assert (made.opened, made.closed) == ([None, str(other)], ["small helper"])
        assert made.conversation.topbar.state == ""
        await ask(pilot, made, "second")
        assert made.conversation.chat == chat
        assert chat is not None
        assert len(history.thread(chat)) == 4
    assert load_config(made.locations.settings).model == OTHER


async def test_the_session_statistics_are_reset(stage: Make, other: Path) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        session = made.app.chat_screen._session_statistics
        assert session.answers == 1
        await choose(pilot, made, "other")
        await until(pilot, lambda: session.budget_status is None)
        assert (session.answers, session.session.tokens, session.trend()) == (0, 0, [0.0] * 10)


async def test_the_hint_is_that_of_the_model_that_answers(stage: Make, other: Path) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: "It knows commands." in shown(made))
        await choose(pilot, made, "other")
        await until(pilot, lambda: "It knows commands." not in shown(made))
        await until(pilot, lambda: f"Switched to {OTHER}" in notices(made))
        await choose(pilot, made, "built-in")
        await until(pilot, lambda: "It knows commands." in shown(made))
        await until(pilot, lambda: "Switched to built-in" in notices(made))
    assert load_config(made.locations.settings).model == ""


async def test_the_empty_prompt_asks_for_what_the_model_knows(stage: Make, other: Path) -> None:
    made = stage(asks="Ask for a command")
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: made.conversation.prompt.placeholder == "Ask for a command")
        await choose(pilot, made, "other")
        await until(pilot, lambda: f"Switched to {OTHER}" in notices(made))
        assert made.conversation.prompt.placeholder == ASK_ANYTHING


async def test_a_failed_switch_keeps_the_previous_model_and_the_prompt(
    stage: Make, other: Path
) -> None:
    refused = {str(other): ModelError("other.gguf needs 41 GB of memory: choose a smaller model")}
    made = stage(PLAIN, refused=refused)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        await type_in(pilot, made, "half a thou")
        await choose(pilot, made, "other")
        await until(pilot, lambda: notices(made))
        assert notices(made) == [str(refused[str(other)])]
        assert made.conversation.topbar.model == "small helper"
        assert not made.conversation.topbar.failed
        assert made.opened == [None, str(other), str(embedded())]
        assert made.conversation.prompt.text == "half a thou"
        assert made.app.chat_screen._session_statistics.answers == 1
        await pilot.press(*"ght", "enter")
        await until(pilot, lambda: "half a thought" in made.assistant.asked)
    assert load_config(made.locations.settings).model == ""


async def test_if_neither_model_opens_both_reasons_are_shown_and_f5_works(
    stage: Make, other: Path
) -> None:
    refused = {
        str(other): ModelError("other.gguf is damaged: download it again"),
        str(embedded()): ModelError("the embedded one is gone: install specchat again"),
    }
    made = stage(PLAIN, refused=dict(refused))
    async with made.app.run_test() as pilot:
        await choose(pilot, made, "other")
        await until(pilot, lambda: notices(made))
        assert notices(made) == [
            "other.gguf is damaged: download it again; the previous model cannot be opened either:"
            " the embedded one is gone: install specchat again"
        ]
        assert made.conversation.topbar.state == "no model"
        await send(pilot, made, "anyone?")
        await until(
            pilot,
            lambda: "No model is loaded: choose one from the list of models" in notices(made),
        )
        assert made.conversation.prompt.text == "anyone?"
        made.refused.clear()
        await pilot.press("f5")
        await until(pilot, lambda: isinstance(made.app.screen, ModelPicker))
        await type_name(pilot, made, "other")
        await until(pilot, lambda: made.app.screen.listed.chosen is not None)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: made.conversation.topbar.model == other.stem)
        assert not made.conversation.topbar.failed


async def test_no_switch_while_an_answer_is_generated(stage: Make, other: Path) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "three" in shown(made))
        await choose(pilot, made, "other")
        await until(pilot, lambda: notices(made))
        assert notices(made) == ["Still answering. Esc stops it."]
        assert made.opened == [None]
        await pilot.press("escape")
        await answered(pilot, made)


async def test_a_question_during_loading_is_answered_by_the_new_model(
    stage: Make, other: Path
) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        gate = Flag()
        await until(pilot, lambda: made.conversation.topbar.model)
        made.gate = gate.wait
        await choose(pilot, made, "other")
        await until(pilot, lambda: made.opened == [None, str(other)])
        await send(pilot, made, "early")
        await until(pilot, lambda: "loading the model" in shown(made))
        assert (made.assistant.asked, made.conversation.topbar.model) == ([], "")
        gate.set()
        await until(pilot, lambda: "an answer of some words" in shown(made))
        assert made.conversation.topbar.model == other.stem
        assert made.conversation.topbar.state == ""


async def test_a_settings_error_is_shown_and_the_new_model_stays(stage: Make, other: Path) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await open_picker(pilot, made)
        made.locations.settings.write_text("nonsense = 1")
        await type_name(pilot, made, "other")
        await pilot.press("enter")
        await until(pilot, lambda: notices(made))
        assert "unknown setting 'nonsense'" in notices(made)[0]
        assert made.conversation.topbar.model == other.stem
