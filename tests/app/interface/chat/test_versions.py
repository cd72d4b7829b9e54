"""Questions are edited, answers regenerated, and every version is kept."""

from __future__ import annotations

import pytest

from app.interface.transcript.transcript import Transcript
from datastores.chats.history import History
from datastores.errors import ContextOverflowError
from engines.draft_tree import CHATS
from tests.app.interface.conftest import Make, answered, ask, notices, send, shown, type_in, until
from tests.app.interface.scripted import Script, passes_of

ANSWERS = [Script(passes_of(f"{number} it is", [CHATS], 2)) for number in ("One", "Two", "Three")]


async def test_an_answer_is_regenerated_and_every_version_kept(stage: Make) -> None:
    made = stage(*ANSWERS)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "which?")
        assert "‹" not in shown(made)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "‹ 2/2 ›" in shown(made))
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "‹ 3/3 ›" in shown(made))
        assert "Three it is" in shown(made)
        assert "One" not in shown(made)
        await pilot.press("alt+left")
        assert "Two it is" in shown(made)
        assert "‹ 2/3 ›" in shown(made)
        await pilot.press("alt+left", "alt+left")
        assert "One it is" in shown(made)
        await pilot.press("alt+right")
        assert "Two it is" in shown(made)
        assert shown(made).count("which?") == 1


async def test_an_earlier_question_is_edited_and_its_branch_kept(
    stage: Make, history: History
) -> None:
    made = stage(Script(passes_of("an answer", [CHATS], 2)))
    async with made.app.run_test() as pilot:
        for text in ("first", "second", "third"):
            await ask(pilot, made, text)
        await type_in(pilot, made, "not sent yet")
        await pilot.press("ctrl+t", "ctrl+t")
        prompt = made.conversation.prompt
        assert prompt.text == "second"
        assert "Esc" in str(prompt.border_subtitle)
        await send(pilot, made, " thoughts")
        await until(pilot, lambda: "second thoughts" in made.assistant.asked)
        await answered(pilot, made)
        assert "‹ 2/2 ›" in shown(made)
        assert "third" not in shown(made)
        assert prompt.text == "not sent yet"
        await pilot.press("alt+left")
        assert "third" in shown(made)
        assert "second thoughts" not in shown(made)
    (chat,) = history.chats()
    assert len(history.tree(chat.id)) == 8


async def test_switching_continues_above_when_the_lowest_message_has_no_more_versions(
    stage: Make,
) -> None:
    made = stage(*ANSWERS)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "which?")
        await pilot.press("ctrl+t")
        await send(pilot, made, " really?")
        await until(pilot, lambda: "Two it is" in shown(made))
        await answered(pilot, made)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: shown(made).count("‹ 2/2 ›") == 2)
        seen = []
        for key in ("alt+left", "alt+left", "alt+left", "alt+right"):
            await pilot.press(key)
            seen.append(shown(made).partition(" it is")[0].rpartition("\n")[2])
        assert seen == ["Two", "One", "One", "Three"]


async def test_escape_cancels_an_edit(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        await type_in(pilot, made, "draft")
        await pilot.press("ctrl+t", "x", "escape")
        assert made.conversation.prompt.text == "draft"
        assert not made.conversation.prompt.border_subtitle
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked == ["first", "draft"])
        await answered(pilot, made)
        assert "‹" not in shown(made)


async def test_a_failed_edit_can_be_changed_again(stage: Make, history: History) -> None:
    made = stage(ANSWERS[0], Script([], fails=ContextOverflowError("it is too long")))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "short")
        await pilot.press("ctrl+t")
        await send(pilot, made, " and long")
        await until(pilot, lambda: notices(made))
        await until(pilot, lambda: made.conversation.prompt.text == "short and long")
        assert "One it is" in shown(made)
        await pilot.press("escape")
        assert made.conversation.prompt.text == ""
    (chat,) = history.chats()
    assert history.thread(chat.id)[-1].content == "One it is"


@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+t", "alt+left"])
async def test_versions_cannot_change_while_an_answer_is_written(stage: Make, key: str) -> None:
    made = stage(Script(ANSWERS[0].passes, holds=True))
    async with made.app.run_test() as pilot:
        await send(pilot, made, "first")
        await until(pilot, lambda: "One it is" in shown(made))
        await pilot.press(key)
        await until(pilot, lambda: notices(made))
        assert made.conversation.prompt.text == ""
        assert len(made.app.screen.query_one(Transcript).entries) == 2
