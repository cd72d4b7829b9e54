"""Questions and answers: nothing is lost, whenever the person types, stops or quits."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event as Flag
from typing import Any

import pytest
from textual import events

from app.interface.chat.topbar import TopBar
from app.interface.transcript.answer import Answer
from app.runtime.model_thread import ModelThread
from datastores.chats.history import History
from datastores.errors import ContextOverflowError, ModelError, StoreError
from engines.draft_tree import CHATS
from tests.app.frames import MAX_INTERFACE_FRAMES, own_frames
from tests.app.interface.conftest import (
    PLAIN,
    SCRIPT,
    Make,
    answered,
    ask,
    notices,
    send,
    shown,
    type_in,
    until,
)
from tests.app.interface.scripted import Script, passes_of

SLOW = Script(passes_of("one two three four five", [CHATS], 2), holds=True)


async def test_a_question_is_answered_and_the_prompt_is_empty_again(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ask(pilot, made, "How do I copy a directory?")
        assert "You can copy a directory with everything in it:" in shown(made)
        assert "cp -r source/ target/" in shown(made)
        assert made.conversation.prompt.text == ""
        assert made.conversation.topbar.chat == "How do I copy a directory?"


async def test_what_is_typed_while_the_model_loads_is_sent_afterwards(stage: Make) -> None:
    gate = Flag()
    made = stage(PLAIN, gate=gate.wait)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "early")
        await until(pilot, lambda: "loading the model" in shown(made))
        assert made.assistant.asked == []
        gate.set()
        await until(pilot, lambda: "an answer of some words" in shown(made))
        assert made.conversation.topbar.model == "small helper"


async def test_stopping_while_the_model_loads_returns_the_question(stage: Make) -> None:
    gate = Flag()
    made = stage(PLAIN, gate=gate.wait)
    async with made.app.run_test() as pilot:
        await type_in(pilot, made, "never mind")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: made.conversation.prompt.text == "never mind")
        gate.set()
        await until(pilot, lambda: made.conversation.model_thread.model)
        assert made.assistant.asked == []


async def test_a_model_that_cannot_be_loaded_is_named_and_the_question_returns(
    stage: Make,
) -> None:
    made = stage(fails=ModelError("bad.gguf is no model: choose another with --model"))
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: notices(made))
        assert notices(made) == ["bad.gguf is no model: choose another with --model"]
        assert made.conversation.topbar.state == "no model"
        await send(pilot, made, "hello?")
        await until(pilot, lambda: made.conversation.prompt.text == "hello?")


async def test_escape_stops_and_keeps_what_was_written(stage: Make, history: History) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "five" in shown(made))
        await pilot.press("escape")
        await answered(pilot, made)
        assert "one two three four five" in shown(made)
        assert "■ stopped" in shown(made)
    (chat,) = history.chats()
    answer = history.thread(chat.id)[-1]
    assert (answer.content, answer.finish) == ("one two three four five", "interrupted")


async def test_a_remark_is_shown_below_its_answer_and_when_reopened(
    stage: Make, history: History
) -> None:
    script = Script(passes_of("find . -mtime -100", [0], 1), remark="The command leaves out it.")
    made = stage(script)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "big files")
        await until(pilot, lambda: made.conversation.turn is None and "leaves out" in shown(made))
        assert shown(made).index("-mtime") < shown(made).index("The command leaves out it.")
        (chat,) = history.chats()
        await pilot.press("ctrl+n")
        await until(pilot, lambda: "leaves out" not in shown(made))
        made.conversation.open(chat.id)
        await until(pilot, lambda: "leaves out" in shown(made))


async def test_quitting_in_mid_answer_keeps_it(stage: Make, history: History) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "five" in shown(made))
        await pilot.press("ctrl+q")
    assert made.app.leave()
    assert history.thread(history.chats()[0].id)[-1].content == "one two three four five"


async def test_a_question_in_another_chat_stays_in_the_prompt_during_an_answer(
    stage: Make,
) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "first")
        await until(pilot, lambda: "five" in shown(made))
        await pilot.press("ctrl+n")
        await send(pilot, made, "second")
        await until(pilot, lambda: notices(made))
        assert made.conversation.prompt.text == "second"
        assert made.assistant.asked == ["first"]


async def test_an_answer_grows_while_another_chat_is_open(stage: Make) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "one" in shown(made))
        chat = made.conversation.chat
        await pilot.press("ctrl+n")
        await type_in(pilot, made, "not sent yet")
        assert "one two" not in shown(made)
        made.conversation.open(chat)
        await until(pilot, lambda: "one two three four five" in shown(made))
        assert made.conversation.prompt.text == ""
        made.conversation.open(None)
        assert made.conversation.prompt.text == "not sent yet"


async def test_a_question_that_does_not_fit_returns_to_the_prompt(
    stage: Make, history: History
) -> None:
    long = "a very long question"
    made = stage(
        Script([], fails=ContextOverflowError("it has 9 tokens, 8 fit: shorten it")), PLAIN
    )
    async with made.app.run_test() as pilot:
        await send(pilot, made, long)
        await until(pilot, lambda: made.conversation.prompt.text == long)
        assert notices(made) == ["It has 9 tokens, 8 fit: shorten it"]
        await pilot.press("enter")
        await until(pilot, lambda: "an answer of some words" in shown(made))
    thread = history.thread(history.chats()[0].id)
    assert [message.role for message in thread] == ["user", "assistant"]


async def test_a_full_disk_keeps_the_answer_on_the_screen(stage: Make) -> None:
    full = Script(PLAIN.passes, fails=StoreError("history.db: the disk is full; free some space"))
    made = stage(full)
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "question")
        assert "an answer of some words" in shown(made)
        assert "■ failed" in shown(made)
        assert "stopped" not in shown(made)
        assert notices(made) == ["history.db: the disk is full; free some space"]


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_the_prompt_grows_with_new_lines(stage: Make, key: str) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=(80, 40)) as pilot:
        prompt = made.conversation.prompt
        await pilot.press("a", key, "b")
        assert prompt.text == "a\nb"
        assert prompt.content_size.height == 2
        await pilot.press(*[key] * 20)
        assert prompt.content_size.height == 8
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked)
        assert made.assistant.asked[0].startswith("a\nb\n")


async def test_pasting_keeps_lines_and_neutralises_escape_sequences(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        made.app.post_message(events.Paste("one\rtwo\r\nthree\x1b[31m\u202e"))
        await until(pilot, lambda: made.conversation.prompt.text)
        assert made.conversation.prompt.text == "one\ntwo\nthree␛[31m"


async def test_up_in_an_empty_prompt_recalls_questions(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        prompt = made.conversation.prompt
        await ask(pilot, made, "first")
        await ask(pilot, made, "second")
        recalled = []
        for key in ("up", "up", "up", "down", "down"):
            await pilot.press(key)
            recalled.append(prompt.text)
        assert recalled == ["second", "first", "first", "second", ""]
        await pilot.press("x", "up")
        assert prompt.text == "x"


async def test_typing_outside_the_prompt_goes_into_it(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.click("Transcript")
        assert made.conversation.prompt.has_focus
        made.conversation.transcript.focus()
        await pilot.press("h", "i")
        assert made.conversation.prompt.text == "hi"


async def test_an_empty_prompt_sends_nothing(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("space", "enter")
        assert made.conversation.turn is None
        assert made.assistant.asked == []


async def test_reasoning_is_folded_while_it_streams_and_afterwards(stage: Make) -> None:
    thought = passes_of("<think> let me see now", [CHATS], 2)
    answer = [[(" </think>", 0)], [("\n\nForty", CHATS), ("-two", 0)]]
    made = stage(Script([*thought, *answer]))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "why?")
        assert "▸ Thought for" in shown(made)
        assert "let me see" not in shown(made)
        assert "Forty-two" in shown(made)
        await pilot.press("f4")
        assert "let me see now" in shown(made)


async def test_thinking_shows_its_token_count(stage: Make) -> None:
    made = stage(Script(passes_of("<think> let me see now", [CHATS], 2), holds=True))
    async with made.app.run_test() as pilot:
        await send(pilot, made, "why?")
        await until(pilot, lambda: "▸ Thinking… 5 tokens" in shown(made))
        assert made.app.screen.query_one(TopBar).state == "thinking…"


async def test_reading_a_long_prompt_shows_progress(stage: Make) -> None:
    made = stage(Script([], prefill=[(512, 2048)], holds=True))
    async with made.app.run_test() as pilot:
        await send(pilot, made, "long")
        await until(pilot, lambda: "reading 512 of 2,048 tokens…" in shown(made))
        assert made.app.screen.query_one(TopBar).state == "reading 25%"


async def test_checking_passages_shows_progress(stage: Make) -> None:
    made = stage(Script([], checking=[(1, 3), (2, 3)], holds=True))
    async with made.app.run_test() as pilot:
        await send(pilot, made, "which one?")
        await until(pilot, lambda: "checking passage 2 of 3…" in shown(made))
        assert made.app.screen.query_one(TopBar).state == "checking"


async def test_dropped_messages_are_reported(stage: Make) -> None:
    made = stage(Script(PLAIN.passes, dropped=4))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        assert "the model no longer sees the first 4 messages" in shown(made)


@pytest.mark.parametrize(
    ("finish", "said"),
    [("length", "maximum answer length"), ("context", "the context is full")],
)
async def test_an_answer_that_was_cut_off_says_why(stage: Make, finish: str, said: str) -> None:
    made = stage(Script(PLAIN.passes, finish=finish))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "go on")
        assert said in shown(made)


async def test_a_damaged_history_is_reported(stage: Make) -> None:
    made = stage()
    aside = made.locations.history.with_name("history.db.corrupt-20260101-000000")
    aside.write_bytes(b"no database")
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: notices(made))
        assert f"specchat restore {aside}" in notices(made)[0]


async def test_a_long_chat_is_laid_out_only_near_the_screen(stage: Make, history: History) -> None:
    chat = history.create_chat("long")
    parent = None
    for number in range(300):
        role = "assistant" if number % 2 else "user"
        parent = history.add_message(chat.id, parent, role, f"message {number}").id
    made = stage(SCRIPT)
    async with made.app.run_test(size=(80, 24)) as pilot:
        made.conversation.open(chat.id)
        await pilot.pause()
        transcript = made.conversation.transcript
        assert "message 299" in shown(made)
        assert len(transcript.rows) < 150
        for _ in range(60):
            transcript.action_page_up()
            await pilot.pause()
        assert "message 0" in shown(made)
        assert transcript.scroll_offset.y == 0
        made.conversation.open(chat.id)
        await pilot.press("ctrl+home")
        await until(pilot, lambda: transcript.rows[0].text == "message 0")
        assert len(transcript.rows) < 150
        await pilot.press("ctrl+end")
        await until(pilot, lambda: "message 299" in shown(made))
        assert isinstance(transcript.entries[-1], Answer)


async def test_few_frames_lie_between_the_key_and_the_model_thread(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    ask_model = ModelThread.ask

    def asked(thread: ModelThread, *arguments: Any) -> Future[None]:
        stacks.append(own_frames())
        return ask_model(thread, *arguments)

    monkeypatch.setattr(ModelThread, "ask", asked)
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "How do I copy a directory?")
    (stack,) = stacks
    # The key's action posts a message, which is handled on another stack.
    frames = ["Prompt.action_send", *stack, "ModelThread.ask"]
    assert len(frames) <= MAX_INTERFACE_FRAMES, frames
