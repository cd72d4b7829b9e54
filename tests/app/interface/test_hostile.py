"""Text that attacks terminals: it neither crashes the interface nor reaches the terminal raw."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datastores.chats.history import History
from engines.draft_tree import CHATS
from tests.app.interface.conftest import Stage, ask, shown, until
from tests.app.interface.scripted import Script

Make = Callable[..., Stage]

HOSTILE = [
    "[/INST]",
    "[bold",
    "[@click=app.quit]press[/]",
    "\x1b[2J\x1b]52;c;aGk=\x07",
    "\x9b31m\x90q\x9c",
    "\u202eright to left\u202c",
    "zero\u200bwidth\u2066",
    "nul\x00bell\x07",
    "\U000e0041tag",
    "| a | b |\n|---|---|\n| [/x] | \x1b[0m |",
    "```[/INST]\n\x1b]0;title\x07",
    "# [link](javascript:alert) \x1b[1m",
    "a" * 3000,
]
RAW = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u200b\u202e\u202c\u2066\U000e0041"}
RAW -= {"\n"}


def painted(made: Stage) -> str:
    """All characters on the screen, as they would be written to a terminal."""
    strips = made.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_answers(stage: Make, text: str) -> None:
    tokens = [[(text[:1], 0)], [(character, CHATS) for character in text[1:40]] + [(text[40:], 0)]]
    made = stage(Script(tokens))
    async with made.app.run_test(size=(120, 36)) as pilot:
        await ask(pilot, made, "go on")
        await pilot.press("f2", "f3")
        assert not RAW & set(painted(made))
        await pilot.press("f3")
        assert not RAW & set(painted(made))


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_questions_and_titles(stage: Make, history: History, text: str) -> None:
    chat = history.create_chat(text)
    question = history.add_message(chat.id, None, "user", text)
    history.add_message(chat.id, question.id, "assistant", text)
    made = stage()
    async with made.app.run_test(size=(160, 40)) as pilot:
        made.conversation.open(chat.id)
        await pilot.pause()
        assert not RAW & set(painted(made))
        await pilot.press("up")
        assert not RAW & set(painted(made))


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_errors(stage: Make, text: str) -> None:
    made = stage()
    async with made.app.run_test(size=(120, 36)) as pilot:
        made.conversation.show_error(text)
        await pilot.pause(0.1)
        assert not RAW & set(painted(made))


async def test_an_escape_sequence_split_across_tokens_is_letters(stage: Make) -> None:
    made = stage(Script([[("a\x1b", 0)], [("[3", CHATS), ("1mred", 0)]]))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        assert "a␛[31mred" in shown(made)


async def test_links_do_nothing_when_clicked(stage: Make) -> None:
    opened: list[str] = []
    made = stage(Script([[("[press here](http://example.com)", 0)]]))
    made.app.open_url = lambda url, **_: opened.append(url)  # type: ignore[method-assign]
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        for x in range(0, 40, 4):
            await pilot.click("Transcript", offset=(x, 2))
        assert opened == []


async def test_selected_text_is_copied_without_the_gutter(stage: Make) -> None:
    made = stage(Script([[("some words", 0)]]))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "question")
        made.conversation.transcript.text_select_all()
        await until(pilot, lambda: made.app.screen.get_selected_text())
        assert (made.app.screen.get_selected_text() or "").split() == ["question", "some", "words"]
