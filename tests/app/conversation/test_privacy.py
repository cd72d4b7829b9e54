"""Isolated chats: what they say reaches no drafter, observer or index of other chats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.conversation import generation, privacy
from app.conversation.assistant import Assistant
from app.conversation.privacy import CHAT_PREFIX, ChatIsolation, owner_of_chat
from app.engine.draft_model_versions import replay_path
from app.engine.draft_resources import make_observers, open_replay
from app.engine.engine import Engine
from app.locations import locate
from app.runtime.idle_encoding import encode_when_idle
from datastores.chats.history import History
from datastores.chats.records import LOOPED
from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from datastores.replay_buffer.record import ReplayRecord, question_key
from datastores.replay_buffer.store import ReplayBuffer
from tests.app.scripted import Recorder, drafted, scripted_engine
from tests.engines.scripted import VOCABULARY, WIDTH

SECRET = "use the key AKIAIOSFODNN7EXAMPLE, please"


@pytest.mark.parametrize(("private", "text"), [(True, "hello"), (False, SECRET)])
def test_an_isolated_chat_has_drafters_of_its_own_and_no_observers(
    tmp_path: Path, private: bool, text: str
) -> None:
    engine = scripted_engine(tmp_path)
    engine.observers.append(Recorder())
    history = History.open(tmp_path / "history.db")
    chat = replace(history.create_chat(), private=private)
    isolation = ChatIsolation(engine, history.name)
    isolated = isolation.engine(chat, [text])
    assert isolated.observers == []
    assert not {id(drafter) for drafter in isolated.drafters} & {id(one) for one in engine.drafters}
    assert isolation.engine(chat, [text]) is isolated, "it remembers within its chat"
    history.close()


def test_other_chats_share_the_engine(tmp_path: Path) -> None:
    engine = scripted_engine(tmp_path)
    engine.observers.append(Recorder())
    history = History.open(tmp_path / "history.db")
    assert ChatIsolation(engine, history.name).engine(history.create_chat(), ["hello"]) is engine
    history.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine that records into a dense index."""
    made = scripted_engine(tmp_path, drafters=("recycle",))
    store = DenseStore.open(tmp_path / "dense.db", "scripted", WIDTH)
    made.resources.dense = DenseWorker(store, VOCABULARY)
    made.observers.extend(make_observers(made.resources))
    yield made
    made.resources.close()
    assert made.resources.dense.error is None


def positions(engine: Engine) -> int:
    """Tokens in the dense index."""
    assert engine.resources.dense is not None
    return engine.resources.dense.ask(DenseIndex.status).positions


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Engine]:
    """An engine that records into a replay buffer."""
    made = scripted_engine(tmp_path)
    made.resources.replay = open_replay(locate(tmp_path), made.target)
    made.learns = True
    made.observers.extend(make_observers(made.resources))
    yield made
    made.resources.close()
    assert made.errors == []


def recorded(engine: Engine, folder: Path) -> list[ReplayRecord]:
    """What is in the replay buffer."""
    assert engine.resources.replay is not None
    engine.resources.replay.flush()
    path = replay_path(locate(folder), engine.target.fingerprint)
    path.parent.mkdir(exist_ok=True)
    with closing(ReplayBuffer.open(path, engine.target.fingerprint, VOCABULARY)) as buffer:
        return list(buffer.records())


def test_answers_are_recorded_with_chat_and_question(tmp_path: Path, recording: Engine) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant, chat = Assistant(recording, history), history.create_chat("be brief").id
        list(assistant.answer(chat, None, "Hello"))
        list(assistant.answer(chat, history.chat(chat).active, "why?"))
        first, second = recorded(recording, tmp_path)
        assert first.chat == second.chat == chat
        assert first.question == first.topic == second.topic == question_key("hello")
        assert second.question == question_key("why")
        thread = history.path(history.chat(chat).active or 0)
        answer = list(thread[1].tokens)
        assert first.tokens[first.prompt_length :].tolist()[: len(answer)] == answer


def test_nothing_is_recorded_where_learning_is_off(tmp_path: Path, recording: Engine) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant = Assistant(recording, history)
        for learns in (False, True, False):
            recording.learns = learns
            list(assistant.answer(history.create_chat().id, None, "hello"))
        assert len(recorded(recording, tmp_path)) == 1


@pytest.mark.parametrize(("private", "text"), [(True, "hello"), (False, SECRET)])
def test_an_isolated_chat_leaves_no_record(
    tmp_path: Path, recording: Engine, private: bool, text: str
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant = Assistant(recording, history)
        list(assistant.answer(history.create_chat(private=private).id, None, text))
        list(assistant.answer_unsaved(None, "hello"))
        assert recorded(recording, tmp_path) == []


def test_an_answer_with_a_secret_leaves_no_record_of_its_chat(
    tmp_path: Path, recording: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant, chat = Assistant(recording, history), history.create_chat().id
        list(assistant.answer(chat, None, "hello"))
        assert len(recorded(recording, tmp_path)) == 1
        monkeypatch.setattr(privacy, "redact", lambda text: (text, text not in ("", "hello")))
        list(assistant.answer(chat, None, "hello"))
        assert recorded(recording, tmp_path) == []


def test_a_chat_deleted_while_it_is_answered_leaves_no_record(
    tmp_path: Path, recording: Engine
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant, chat = Assistant(recording, history), history.create_chat().id
        answer = assistant.answer(chat, None, "hello")
        for _ in zip(range(5), answer, strict=False):
            pass
        history.set_private(chat, True)
        answer.close()
        assert recorded(recording, tmp_path) == []


@pytest.mark.parametrize("events", [3, 10_000])
def test_an_answer_with_a_secret_is_forgotten_however_it_ends(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant = Assistant(engine, history)
        list(assistant.answer(history.create_chat().id, None, "hello"))
        assert drafted(engine) > 0
        before = positions(engine)
        assert before > 0
        monkeypatch.setattr(privacy, "redact", lambda text: (text, text not in ("", "hello")))
        answer = assistant.answer(history.create_chat().id, None, "hello")
        for _ in zip(range(events), answer, strict=False):
            pass
        answer.close()
        assert drafted(engine) == 0
        assert positions(engine) == before


@pytest.mark.parametrize(("private", "text"), [(True, "hello"), (False, SECRET)])
def test_an_isolated_chat_is_not_recorded(
    tmp_path: Path, engine: Engine, private: bool, text: str
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant = Assistant(engine, history)
        list(assistant.answer(history.create_chat().id, None, "hello"))
        before = positions(engine)
        list(assistant.answer(history.create_chat(private=private).id, None, text))
        assert positions(engine) == before
        list(assistant.answer(history.create_chat().id, None, "hello"))
        assert positions(engine) > before


def test_nothing_is_drafted_from_an_answer_that_was_stopped_as_a_loop(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant, looped = Assistant(engine, history), history.create_chat().id
        list(assistant.answer(history.create_chat().id, None, "hello"))
        before = positions(engine)
        with monkeypatch.context() as patched:
            patched.setattr(generation, "is_looping", lambda tokens, start: len(tokens) > start + 8)
            list(assistant.answer(looped, None, "hello"))
        last = history.thread(looped)[-1]
        assert last.finish == LOOPED
        assert drafted(engine) == 0
        assert positions(engine) == before
        list(assistant.answer(looped, last.id, "hello"))
        assert history.thread(looped)[-1].finish != LOOPED
        assert positions(engine) == before, "its prompt holds the loop"
        list(encode_when_idle(engine, locate(tmp_path), history, texts=True))
        assert positions(engine) == before


def test_a_loop_is_not_learned_from(
    tmp_path: Path, recording: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant, chat = Assistant(recording, history), history.create_chat().id
        list(assistant.answer(chat, None, "hello"))
        monkeypatch.setattr(generation, "is_looping", lambda tokens, start: len(tokens) > start + 8)
        list(assistant.answer(chat, history.thread(chat)[-1].id, "hello"))
        assert len(recorded(recording, tmp_path)) == 1


def test_answers_are_filed_under_their_chat(tmp_path: Path, engine: Engine) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        assistant = Assistant(engine, history)
        chats = [history.create_chat().id for _ in range(2)]
        for chat in chats:
            list(assistant.answer(chat, None, "hello"))
        assert engine.resources.dense is not None
        owners = engine.resources.dense.ask(lambda index: index.owners(CHAT_PREFIX))
        assert owners == {owner_of_chat(history.name, chat) for chat in chats}
