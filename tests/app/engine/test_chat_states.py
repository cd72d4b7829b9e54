"""Chats are saved while the model is idle, loaded instead of read, and deleted with the chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from time import perf_counter

import numpy as np
import pytest
from numpy.typing import NDArray

from app.config import Options
from app.conversation.assistant import Assistant
from app.engine.chat_states import MIN_GAIN_TOKENS, MIN_READING_S, ChatStates
from app.engine.engine import Engine
from app.engine.loading import load, open_chat_states
from app.locations import Locations
from app.runtime.deletion import delete_chat, erase_deleted, make_private
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.errors import ModelError
from datastores.kv_blocks import KvBlocks, stored
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.llama.target import LlamaTarget
from tests.app.scripted import ScriptedVocabulary, scripted_engine
from tests.engines.scripted import ScriptedTarget
from tests.waiting import TIMEOUT_S

TOKEN_S, LOAD_S = 0.1, 0.01
"""Seconds to read a token, and to load a block."""
LONG = "all that was ever written about it " * 8
MAX_BYTES = 10**6


class Clock:
    """Virtual time, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.chat_states.perf_counter", CLOCK)
    monkeypatch.setattr("app.conversation.generation.perf_counter", CLOCK)


class SavableTarget(ScriptedTarget):
    """A scripted target whose state is its tokens.

    Attributes:
        read: tokens that prefill evaluated.
        load_s: seconds to load a block.
    """

    state_key = "scripted"
    load_s = LOAD_S

    def __init__(self, block: int = 32) -> None:
        super().__init__()
        self.state_block = block
        self.read = 0

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Count what was not cached."""
        new = len(tokens) - min(common_prefix(self.tokens, tokens), len(tokens) - 1)
        self.read += new
        for done in super().prefill(tokens):
            CLOCK.now += TOKEN_S * new / 2
            yield done

    def save_state(self, start: int, end: int) -> NDArray[np.uint8]:
        """The tokens."""
        return np.array(self.tokens[start:end], np.uint8)

    def load_state(self, tokens: Sequence[int], state: NDArray[np.uint8]) -> None:
        """Append them."""
        CLOCK.now += self.load_s
        if state.tolist() != list(tokens):
            raise ModelError("refused")
        self.tokens.extend(tokens)


@pytest.fixture
def engine(locations: Locations) -> Engine:
    return opened(locations)


def render(messages: Sequence[Message]) -> list[int]:
    """As a chat template: a prompt ends where the next one holds the answer."""
    encode = ScriptedVocabulary().encode
    texts = [
        [9 if message.role == ASSISTANT else 4, *(message.tokens or encode(message.content))]
        for message in messages
    ]
    return [*chain(*texts), 9]


def opened(locations: Locations, *, block: int = 32, min_reading_s: float = 3.0) -> Engine:
    """An engine that was just started."""
    engine = scripted_engine(locations.data)
    engine.target, engine.render = SavableTarget(block), render
    files = KvBlocks(locations.chat_states, "scripted", MAX_BYTES)
    engine.states = ChatStates(engine.target, engine.busy, files, min_reading_s)
    return engine


def read(engine: Engine) -> int:
    """Tokens read so far."""
    assert isinstance(engine.target, SavableTarget)
    return engine.target.read


def ask(engine: Engine, history: History, text: str, chat: int | None = None) -> int:
    """Ask in a chat, else in a new one; save all that is to be saved, and return the chat."""
    chat = chat or history.create_chat().id
    list(Assistant(engine, history).answer(chat, history.chat(chat).active, text))
    assert engine.states is not None
    while engine.states.slice():
        pass
    return chat


@pytest.mark.parametrize("block", [32, 0])
def test_a_reopened_chat_is_not_read_again(
    locations: Locations, history: History, block: int
) -> None:
    again, anew = opened(locations, block=block), opened(locations)
    chat = ask(opened(locations, block=block), history, LONG)
    assert stored(locations.chat_states).chats == 1
    ask(again, history, "more", chat)
    assert read(again) < 10, "the new question alone"
    *_, question, answer = history.path(history.chat(chat).active or 0)
    anew.states = None
    list(Assistant(anew, history).edit(question.id, "more"))
    assert read(anew) > len(LONG)
    assert history.path(history.chat(chat).active or 0)[-1].content == answer.content


def test_a_new_chat_with_the_same_beginning_starts_from_it(
    locations: Locations, history: History, engine: Engine
) -> None:
    system = history.create_chat(system=LONG).id
    ask(engine, history, "one", system)
    again = opened(locations)
    ask(again, history, "another", history.create_chat(system=LONG).id)
    assert read(again) < 16


def test_what_is_read_quickly_is_not_saved(locations: Locations, history: History) -> None:
    ask(opened(locations, min_reading_s=3600), history, LONG)
    assert not locations.chat_states.exists()


@pytest.mark.parametrize(("token_s", "saved"), [(0.0005, True), (0.0001, False)])
def test_a_delay_that_is_felt_is_saved(
    locations: Locations,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    token_s: float,
    saved: bool,
) -> None:
    """A chat that takes .15 s to read, as with a small model, is not read for each question."""
    monkeypatch.setattr(f"{__name__}.TOKEN_S", token_s)
    monkeypatch.setattr(SavableTarget, "load_s", 0.001)
    engines = [opened(locations, min_reading_s=MIN_READING_S) for _ in range(2)]
    chat = ask(engines[0], history, LONG)
    ask(engines[1], history, "more", chat)
    assert (read(engines[1]) < 20) is saved


def test_what_would_not_be_loaded_is_not_saved(
    locations: Locations, history: History, engine: Engine
) -> None:
    assert engine.states is not None
    engine.states.observe(MIN_GAIN_TOKENS, 3600.0)
    engine.states.keep("chat", MIN_GAIN_TOKENS - 1, lambda: True)
    assert not engine.states.slice()


def test_private_and_secret_chats_leave_nothing(
    locations: Locations, history: History, engine: Engine
) -> None:
    ask(engine, history, LONG, history.create_chat(private=True).id)
    ask(engine, history, f"{LONG} AKIAIOSFODNN7EXAMPLE")
    list(Assistant(engine, history).answer_unsaved(None, LONG))
    assert engine.states is not None
    assert not engine.states.slice()
    assert not locations.chat_states.exists()


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("act", [delete_chat, make_private])
def test_a_deleted_chat_is_deleted_in_the_same_act(
    locations: Locations,
    history: History,
    engine: Engine,
    act: Callable[..., None],
    loaded: bool,
) -> None:
    gone, kept = ask(engine, history, LONG), ask(engine, history, LONG[5:])
    trace = np.array(engine.target.tokens[40:60], "<u4").tobytes()
    ask(engine, history, LONG[9:], gone)
    act(history, locations, kept, engine if loaded else None)
    act(history, locations, gone, engine if loaded else None)
    files = [path for path in locations.chat_states.rglob("*") if path.is_file()]
    assert not any(trace in path.read_bytes() for path in files)
    assert stored(locations.chat_states).chats == 0


def test_a_chat_deleted_while_it_is_saved_is_not_saved(
    locations: Locations, history: History, engine: Engine
) -> None:
    chat = history.create_chat().id
    list(Assistant(engine, history).answer(chat, None, LONG))
    assert engine.states is not None
    engine.states.slice()
    delete_chat(history, locations, chat)
    while engine.states.slice():
        pass
    assert stored(locations.chat_states).bytes == 0


def test_the_next_answer_comes_before_the_rest_is_saved(
    locations: Locations, history: History, engine: Engine
) -> None:
    chat = history.create_chat().id
    list(Assistant(engine, history).answer(chat, None, LONG))
    assert engine.states is not None
    engine.states.slice()
    other = ask(engine, history, LONG[7:])
    again = opened(locations)
    ask(again, history, "more", other)
    assert read(again) < 10
    erase_deleted(history, locations)


def test_a_question_waits_for_one_block_at_most(
    history: History, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(engine.target, SavableTarget)
    save, saved = engine.target.save_state, list[int]()

    def count(start: int, end: int) -> NDArray[np.uint8]:
        saved.append(start)
        return save(start, end)

    monkeypatch.setattr(engine.target, "save_state", count)
    list(Assistant(engine, history).answer(history.create_chat().id, None, LONG))
    assert engine.states is not None
    before, more = 0, True
    while more:
        more = engine.states.slice()
        assert len(saved) - before <= 1
        before = len(saved)
    assert before > 4


def test_what_is_left_is_saved_at_the_end(
    locations: Locations, history: History, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.chat_states.CLOSE_TIMEOUT_S", TIMEOUT_S)
    chat = history.create_chat().id
    list(Assistant(engine, history).answer(chat, None, LONG))
    engine.close()
    again = opened(locations)
    ask(again, history, "more", chat)
    assert read(again) < 10


@pytest.mark.parametrize("damage", [b"", b"00000000\n{}\n"])
def test_damaged_files_are_read_anew(
    locations: Locations, history: History, engine: Engine, damage: bytes
) -> None:
    chat = ask(engine, history, LONG)
    for path in locations.chat_states.rglob("*.kv"):
        path.write_bytes(damage)
    again = opened(locations)
    ask(again, history, "more", chat)
    assert read(again) > len(LONG)
    assert again.errors == []


def test_a_disk_slower_than_the_model_is_not_waited_for(
    locations: Locations, history: History, engine: Engine
) -> None:
    chat = ask(engine, history, LONG)
    again = opened(locations)
    assert isinstance(again.target, SavableTarget)
    again.target.load_s = 33 * TOKEN_S
    ask(again, history, "more", chat)
    assert read(again) > len(LONG) - 32


def test_a_refused_state_is_read_and_dropped(
    locations: Locations, history: History, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = ask(engine, history, LONG)
    files = len(list(locations.chat_states.rglob("*.kv")))
    again = opened(locations)

    def refuse(*_: object) -> None:
        raise ModelError("refused")

    monkeypatch.setattr(again.target, "load_state", refuse)
    missing = again.states
    assert missing is not None
    assert list(missing.load([*engine.target.tokens, 5])) == []
    assert len(list(locations.chat_states.rglob("*.kv"))) == files - 1
    assert chat


def test_a_full_disk_ends_saving_and_is_reported(
    locations: Locations, history: History, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("datastores.kv_blocks.write_bytes_atomic", full)
    ask(engine, history, LONG)
    [error] = engine.errors
    assert "No space left on device" in str(error)
    ask(engine, history, LONG[5:])


def test_it_is_off_where_the_settings_or_the_target_say_so(locations: Locations) -> None:
    engine = scripted_engine(locations.data)
    open_chat_states(engine, locations.chat_states, 1000)
    assert engine.states is None, "this target cannot save"
    engine.target = SavableTarget()
    open_chat_states(engine, locations.chat_states, 0)
    assert engine.states is None
    open_chat_states(engine, locations.chat_states, 1000)
    assert engine.states is not None


def test_the_embedded_model_answers_as_if_it_had_read(
    locations: Locations, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.chat_states.perf_counter", perf_counter)
    monkeypatch.setattr("app.conversation.generation.perf_counter", perf_counter)
    monkeypatch.setattr("app.engine.chat_states.MIN_GAIN_TOKENS", 1)
    engine = load(Options(drafters=("prompt",), max_tokens=12), locations)
    assert isinstance(engine.target, LlamaTarget)
    files = KvBlocks(locations.chat_states, engine.target.state_key, MAX_BYTES * 100)
    engine.states = ChatStates(engine.target, engine.busy, files, 0.0)
    chat = ask(engine, history, "how do I list files? " * 60)
    engine.target.rewind(0)
    prompt = engine.render([Message(USER, "how do I list files? " * 60)])
    assert max(engine.states.load(prompt)) >= 256
    ask(engine, history, "and by size?", chat)
    *_, question, answer = history.path(history.chat(chat).active or 0)
    engine.states = None
    engine.target.rewind(0)
    list(Assistant(engine, history).edit(question.id, "and by size?"))
    anew = history.path(history.chat(chat).active or 0)[-1]
    assert (anew.tokens, anew.id != answer.id) == (answer.tokens, True)
