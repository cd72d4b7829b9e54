"""Reasoning in a whole turn: its marks are stored, and the next prompt is without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.bench.forced import ForcedTarget, forced
from app.conversation.assistant import Assistant
from app.conversation.events import Event, Finished, Prefilling, Wrote
from app.conversation.export import as_markdown
from app.conversation.statistics import ORIGINS_KEY, attributed_pieces
from app.engine.engine import Engine
from datastores.chats.history import History
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import split_reasoning
from tests.app.scripted import STOP, ScriptedVocabulary, render, scripted_engine

CHANNEL, MESSAGE, END, START, THINK = 1, 2, 3, 4, 5
CONTROLS = {
    "<|channel|>": CHANNEL,
    "<|message|>": MESSAGE,
    "<|end|>": END,
    "<|start|>": START,
    "[THINK]": THINK,
}
WORDS = {6: "analysis", 7: "final", 8: "assistant", 9: "Hm. ", 10: "It is 40.", 11: "[/THINK]"}
CHANNELS = [CHANNEL, 6, MESSAGE, 9, 9, END, START, 8, CHANNEL, 7, MESSAGE, 10, STOP]


class Harmony(ScriptedVocabulary):
    """A vocabulary with words, and with control tokens that have no bytes."""

    fingerprint = "scripted-harmony"

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        return [CONTROLS[text]] if special and text in CONTROLS else super().encode(text)

    def text(self, token: int) -> str:
        known = {number: text for text, number in CONTROLS.items()} | WORDS
        return known.get(token) or super().text(token)

    def piece(self, token: int) -> bytes:
        if token in CONTROLS.values():
            return b""
        return WORDS[token].encode() if token in WORDS else super().piece(token)


def reasoning_engine(folder: Path, answer: Sequence[int]) -> Engine:
    engine = forced(scripted_engine(folder))
    engine.vocabulary = Harmony()
    assert isinstance(engine.target, ForcedTarget)
    engine.target.answer = answer
    return engine


def shown(events: Sequence[Event]) -> str:
    pieces = (piece for event in events if isinstance(event, Wrote) for piece in event.pieces)
    return "".join(piece.text for piece in pieces)


def test_control_tokens_reach_the_text_and_the_next_prompt_is_without_reasoning(
    tmp_path: Path, history: History
) -> None:
    engine = reasoning_engine(tmp_path, CHANNELS)
    prompts: list[list[Message]] = []

    def rendered(messages: Sequence[Message]) -> list[int]:
        prompts.append(list(messages))
        return render(messages)

    engine.render = rendered
    assistant, chat = Assistant(engine, history), history.create_chat().id
    events = list(assistant.answer(chat, None, "add"))
    stored = history.thread(chat)[-1]
    assert stored.content == shown(events)
    assert stored.content == (
        "<|channel|>analysis<|message|>Hm. Hm. <|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 40."
    )
    split = split_reasoning(stored.content)
    assert (split.reasoning, split.answer) == ("Hm. Hm.", "It is 40.")
    assert stored.tokens == tuple(CHANNELS)
    list(assistant.answer(chat, stored.id, "and more"))
    assert prompts[-1][1] == Message("assistant", "It is 40.")
    exported = "".join(as_markdown(history, [history.chat(chat)]))
    assert "<summary>Reasoning</summary>\n\nHm. Hm.\n\n</details>\n\nIt is 40.\n\n" in exported
    assert "<|" not in exported


@pytest.mark.parametrize("stop_after", [2, 3])
def test_a_prompt_that_opens_the_reasoning_marks_the_answer_even_if_it_is_stopped(
    tmp_path: Path, history: History, stop_after: int
) -> None:
    engine = reasoning_engine(tmp_path, [9, 9, 9, 11, 10, STOP])
    engine.render = lambda messages: [*render(messages), THINK]
    assistant, chat = Assistant(engine, history), history.create_chat().id
    turn = assistant.answer(chat, None, "add")
    steps = 0
    for event in turn:
        steps += isinstance(event, Wrote)
        if steps == stop_after:
            assistant.stop()
    stopped = history.thread(chat)[-1]
    assert stopped.content.startswith("[THINK]Hm. ")
    assert split_reasoning(stopped.content).answer == ""
    runs = stopped.statistics[ORIGINS_KEY]
    assert isinstance(runs, list)
    pieces = attributed_pieces(stopped.content, runs)
    assert "".join(piece.text for piece in pieces) == stopped.content
    assert isinstance(engine.target, ForcedTarget)
    engine.target.answer = [9, 9, 9, 11, 10, STOP][len(stopped.tokens) :]
    events = list(assistant.resume(stopped.id))
    whole = history.thread(chat)[-1].content
    assert isinstance(events[-1], Finished)
    assert whole == "[THINK]Hm. Hm. Hm. [/THINK]It is 40."


def test_a_stop_sequence_keeps_the_tokens_of_an_answer_whose_prompt_opened_it(
    tmp_path: Path, history: History
) -> None:
    engine = reasoning_engine(tmp_path, [9, 11, 10, 9, STOP])
    engine.render = lambda messages: [*render(messages), THINK]
    chat = history.create_chat().id
    events = list(Assistant(engine, history, stop=["40.Hm"]).answer(chat, None, "add"))
    answer = history.thread(chat)[-1]
    assert not isinstance(events[-1], Prefilling)
    assert answer.content == "[THINK]Hm. [/THINK]It is "
    assert answer.tokens == (), "the stop sequence ends within a token"
    engine = reasoning_engine(tmp_path, [9, 11, 10, 9, STOP])
    engine.render = lambda messages: [*render(messages), THINK]
    list(Assistant(engine, history, stop=["Hm. It", "It is"]).answer(chat, answer.id, "add"))
    answer = history.thread(chat)[-1]
    assert answer.content == "[THINK]Hm. [/THINK]"
    assert answer.tokens == (9, 11)
