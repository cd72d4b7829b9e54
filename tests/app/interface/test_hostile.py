"""Hostile text neither crashes the interface nor reaches the terminal raw."""

from __future__ import annotations

from functools import partial

from app.sanitise import one_line
from datastores.chats.history import History
from engines.draft_tree import CHATS
from tests.app.interface.conftest import Make, Stage, ask, notices, shown, until
from tests.app.interface.scripted import Script

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


def raw(made: Stage) -> set[str]:
    """The characters on the screen that must not reach a terminal."""
    return RAW & set(painted(made))


def shows(made: Stage, chat: int) -> bool:
    return made.conversation.chat == chat


def last_notice(made: Stage, text: str) -> bool:
    """Whether `text` is the last one, whatever the case of its first letter."""
    return [notice[1:] for notice in notices(made)[-1:]] == [text[1:]]


async def test_hostile_answers(stage: Make) -> None:
    made = stage(
        *(
            Script([[(text[:1], 0)], [*((one, CHATS) for one in text[1:40]), (text[40:], 0)]])
            for text in HOSTILE
        )
    )
    async with made.app.run_test(size=(120, 36)) as pilot:
        await pilot.press("f2")
        for number, text in enumerate(HOSTILE):
            await pilot.press("ctrl+n")
            await ask(pilot, made, f"go on {number}")
            assert not raw(made), text
            await pilot.press("f3")
            assert not raw(made), text
            await pilot.press("f3")


async def test_hostile_questions_and_titles(stage: Make, history: History) -> None:
    chats = [history.create_chat(text).id for text in HOSTILE]
    for chat, text in zip(chats, HOSTILE, strict=True):
        question = history.add_message(chat, None, "user", text)
        history.add_message(chat, question.id, "assistant", text)
    made = stage()
    async with made.app.run_test(size=(160, 40)) as pilot:
        for chat, text in zip(chats, HOSTILE, strict=True):
            made.conversation.open(chat)
            await until(pilot, partial(shows, made, chat))
            assert not raw(made), text
            await pilot.press("up")
            assert not raw(made), text


async def test_hostile_errors(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(120, 36)) as pilot:
        for text in HOSTILE:
            made.conversation.show_error(text)
            said = one_line(text, 400)
            await until(pilot, partial(last_notice, made, said))
            assert not raw(made), text


async def test_an_escape_sequence_split_across_tokens_is_letters(stage: Make) -> None:
    made = stage(Script([[("a\x1b", 0)], [("[3", CHATS), ("1mred", 0)]]))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        assert "a␛[31mred" in shown(made)


async def test_every_line_end_breaks_a_line_wherever_tokens_are_split(
    stage: Make, history: History
) -> None:
    made = stage(Script([[("one\rtwo\r", 0)], [("\nthree\r\n", CHATS), ("four", 0)]]))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        lines = ["one", "two", "three", "four"]
        assert [line.strip() for line in shown(made).split("\n") if line.strip()][1:5] == lines
        await pilot.press("f3")
        assert [line.strip(" ᴾ") for line in shown(made).split("\n") if line.strip()][1:5] == lines
        stored = history.thread(history.chats()[0].id)[-1].content
        assert stored == "one\rtwo\r\nthree\r\nfour", "what is stored is not changed"


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
