"""The prompt takes bursts of keys, as a busy machine delivers them, and long pastes."""

from __future__ import annotations

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.app import ComposeResult

from app.interface.screen import ChatScreen
from app.interface.text_inputs import (
    FOLDED,
    MAX_PASTED_CHARACTERS,
    LineInput,
    as_pressed,
)
from tests.app.interface.conftest import (
    PLAIN,
    Make,
    answered,
    burst,
    notices,
    ready,
    shown,
    until,
)


async def test_keys_after_enter_in_a_burst_belong_to_the_next_question(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        prompt = made.conversation.prompt
        await burst(pilot, *"one", "enter", *"two")
        await until(pilot, lambda: made.assistant.asked == ["one"])
        await answered(pilot, made)
        assert prompt.text == "two"
        await pilot.press("ctrl+t")
        await burst(pilot, "a", "enter", *"three")
        await until(pilot, lambda: made.assistant.asked == ["one", "onea"])
        await until(pilot, lambda: prompt.text == "two\nthree")


def test_keys_read_in_a_burst_are_those_that_were_pressed() -> None:
    parsed = XTermParser().feed("he\x1bml\x1b[A^\n^")
    early = [event for event in parsed if isinstance(event, events.Event)]
    pressed = [event.key for event in as_pressed(early) if isinstance(event, events.Key)]
    circumflex = "circumflex_accent"
    assert pressed == ["h", "e", "alt+m", "l", "up", circumflex, "enter", circumflex]


async def test_keys_pressed_during_startup_are_not_lost(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(PLAIN)
    compose = ChatScreen.compose

    def typed_over(screen: ChatScreen) -> ComposeResult:
        for key in (*"one", "ctrl+j", *"tw"):
            screen.app.post_message(events.Key(key, key if len(key) == 1 else None))
        return compose(screen)

    monkeypatch.setattr(ChatScreen, "compose", typed_over)
    async with made.app.run_test() as pilot:
        await pilot.press("o")
        await until(pilot, lambda: made.assistant.asked == ["one"])
        await until(pilot, lambda: made.conversation.prompt.text == "two")


async def test_a_long_paste_is_shown_shortened_and_sent_whole(stage: Make) -> None:
    made, pasted = stage(PLAIN), "word " * 200_000
    question = f"Sum up: {pasted}?"
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        prompt = made.conversation.prompt
        await pilot.press(*"Sum up: ")
        made.app.post_message(events.Paste(pasted))
        await until(pilot, lambda: len(prompt.text) > 8)
        await pilot.press("?")
        assert prompt.text == question
        assert len(prompt.document.text) < 1000
        assert FOLDED in prompt.get_line(0).plain
        assert "1,000,000 characters pasted" in notices(made)[-1]
        prompt.select_all()
        assert prompt.selected_text == question
        await pilot.press("backspace", "ctrl+z", "enter")
        await until(pilot, lambda: made.assistant.asked == [question])
        await answered(pilot, made)
        made.conversation.transcript.go_to_start()
        await until(pilot, lambda: "… 980,009 more characters" in shown(made))
        await pilot.press("up")
        assert prompt.text == question, "recalled"
        assert len(prompt.document.text) < 1000


async def test_a_line_input_takes_the_beginning_of_a_long_paste(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press("f8")
        box = made.app.screen.query_one(LineInput)
        made.app.post_message(events.Paste("\x1b[2Jpath" + "x" * 1_000_000))
        await until(pilot, lambda: box.value)
        assert box.value.startswith("␛[2Jpathx")
        assert len(box.value) == MAX_PASTED_CHARACTERS
