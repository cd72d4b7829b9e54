"""What of a long chat the model is shown: little is rendered, read and loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.conversation.assistant import Assistant
from app.conversation.context_window import (
    WINDOW_KEY,
    blocks,
    fit,
    max_prompt_tokens,
    shown_messages,
)
from app.conversation.events import Dropped, Event, Finished
from app.engine.engine import Engine
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from tests.app.scripted import ScriptedVocabulary, render, scripted_engine

CONTEXT, LIMIT = 400, 20


class Renders:
    """Counts what an engine renders."""

    def __init__(self, engine: Engine) -> None:
        self.messages: list[int] = []
        engine.render = self.render

    def render(self, messages: Sequence[Message]) -> list[int]:
        self.messages.append(len(messages))
        return render(messages)


def long_chat(history: History, turns: int, letters: int = 20) -> int:
    """A chat of so many questions with answers, stored by another model."""
    chat, parent = history.create_chat().id, None
    for number in range(turns):
        for role in (USER, ASSISTANT):
            text = f"{role}{number} ".ljust(letters, "x")
            parent = history.add_message(chat, parent, role, text).id
    return chat


def ask(assistant: Assistant, chat: int, question: str = "go on") -> list[Event]:
    return list(assistant.answer(chat, assistant.history.chat(chat).active, question))


def dropped(events: Sequence[Event]) -> int:
    return next((event.messages for event in events if isinstance(event, Dropped)), 0)


def test_a_long_chat_is_rendered_as_often_as_a_short_one(tmp_path: Path, history: History) -> None:
    counts = []
    for turns in (1, 300):
        engine = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
        renders, chat = Renders(engine), long_chat(history, turns)
        ask(Assistant(engine, history), chat)
        counts.append(renders.messages)
    short, long = counts
    assert len(long) == len(short)
    assert max(long) < 40, "messages that cannot fit are not even tried"


def test_a_full_window_stays_where_it_is_until_it_is_full_again(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
    assistant, chat = Assistant(engine, history), long_chat(history, 100)
    read, prompts, boundaries = 0, 0, []
    ask(assistant, chat)
    for _ in range(40):
        before = list(engine.target.tokens)
        events = ask(assistant, chat)
        boundaries.append(dropped(events))
        assert isinstance(events[-1], Finished)
        prompt = events[-1].statistics.prompt_tokens
        again = min(len(before), prompt) - common_prefix(before, list(engine.target.tokens))
        read, prompts = read + again, prompts + prompt
        assert prompt <= max_prompt_tokens(engine, LIMIT)
    assert boundaries == sorted(boundaries)
    assert 2 <= len(set(boundaries)) <= 10, "blocks of turns, not a turn each time"
    assert read <= prompts / 10


def test_a_quarter_is_kept_where_old_turns_are_dropped(tmp_path: Path, history: History) -> None:
    """It is all that the first question in a restored chat waits for."""
    engine = scripted_engine(tmp_path, context_length=5 * CONTEXT, max_tokens=LIMIT)
    longest = max_prompt_tokens(engine, LIMIT)
    events = ask(Assistant(engine, history), long_chat(history, 100))
    assert isinstance(events[-1], Finished)
    assert longest * 0.15 < events[-1].statistics.prompt_tokens <= longest * 0.25


def test_the_last_turn_is_kept_however_long_it_is(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
    chat = [Message(USER, "early"), Message(ASSISTANT, "x" * 200)]
    last = [Message(USER, "tell me all"), Message(ASSISTANT, "y" * 200), Message(USER, "again?")]
    tokens, skipped = fit(engine, [*chat, *last], LIMIT)
    assert skipped == len(chat)
    assert tokens == engine.render(last)


def test_the_boundary_outlives_the_program_and_older_messages_are_not_loaded(
    tmp_path: Path, history: History
) -> None:
    chat = long_chat(history, 100)
    engine = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
    first = dropped(ask(Assistant(engine, history), chat))
    assert first > 150
    stored = history.thread(chat)[-1].statistics[WINDOW_KEY]
    assert stored == {"dropped": first, "context": CONTEXT}
    loaded = []
    path = history.path

    def counted(message: int, skipped: int = 0) -> object:
        found = path(message, skipped)
        loaded.append(len(found))
        return found

    history.path = counted  # type: ignore[method-assign,assignment]
    again = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
    assert dropped(ask(Assistant(again, history), chat)) == first
    assert loaded == [203 - first]
    larger = scripted_engine(tmp_path, context_length=CONTEXT * 2, max_tokens=LIMIT)
    assert dropped(ask(Assistant(larger, history), chat)) < first, "more fits"


def test_a_boundary_that_is_not_of_this_chat_is_not_kept(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path, context_length=CONTEXT, max_tokens=LIMIT)
    chat = long_chat(history, 2)
    for stored in ({"dropped": 1}, {"dropped": 99}, {"dropped": -1}, {"dropped": "2"}, [2], None):
        window = {**stored, "context": CONTEXT} if isinstance(stored, dict) else stored
        active = history.chat(chat).active
        answer = history.add_message(
            chat, active, ASSISTANT, "x", model="scripted", statistics={WINDOW_KEY: window}
        )
        events = list(Assistant(engine, history).answer(chat, answer.id, "go on"))
        assert isinstance(events[-1], Finished)
        assert dropped(events) == 0, stored


@pytest.mark.parametrize("letters", [1, 20, 120])
def test_a_prompt_fits_whatever_the_estimate(tmp_path: Path, letters: int) -> None:
    engine = scripted_engine(tmp_path, context_length=CONTEXT)
    vocabulary = ScriptedVocabulary()
    engine.render = lambda messages: [5] * sum(2 * len(message.content) for message in messages)
    thread = [Message((USER, ASSISTANT)[n % 2], "x" * letters) for n in range(201)]
    assert len(vocabulary.encode(thread[0].content)) == letters, "half of what is rendered"
    tokens, left_out = fit(engine, [Message("system", "s"), *thread], LIMIT)
    assert len(tokens) <= max_prompt_tokens(engine, LIMIT)
    assert left_out % 2 == 0
    assert len(tokens) == 2 + 2 * letters * (201 - left_out)


def test_a_long_chat_in_parts_is_whole_and_each_part_fits(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path, context_length=CONTEXT)
    system = Message("system", "brief")
    thread = [Message((USER, ASSISTANT)[n % 2], f"{n} ".ljust(40)) for n in range(100)]
    parts = list(blocks(engine, [system, *thread]))
    assert [message for part in parts for message in part[1:]] == thread
    assert all(part[0] == system and part[1].role == USER for part in parts)
    assert all(len(engine.render(part)) <= CONTEXT + 80 for part in parts)
    assert len(parts) > 5
    assert list(blocks(engine, thread[:4])) == [thread[:4]], "a short one is one part"


def test_reasoning_is_not_shown_to_the_model_again(history: History) -> None:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "<think>mine</think>")
    answer = history.add_message(
        chat, question.id, ASSISTANT, "hm</think>40", tokens=[1, 2], tokenizer="scripted-letters"
    )
    stopped = history.add_message(chat, answer.id, ASSISTANT, "<think>hm", finish="interrupted")
    plain = history.add_message(
        chat, stopped.id, ASSISTANT, "41", tokens=[3], tokenizer="scripted-letters"
    )
    shown = shown_messages(ScriptedVocabulary(), "brief", history.path(plain.id))
    assert shown == [
        Message("system", "brief"),
        Message(USER, "<think>mine</think>"),
        Message(ASSISTANT, "40"),
        Message(ASSISTANT, ""),
        Message(ASSISTANT, "41", (3,)),
    ]
