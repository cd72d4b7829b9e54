"""Reading while idle: the index comes to hold what library and history offer, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.conversation.privacy import owner_of_chat
from app.engine.engine import Engine
from app.indexing.corpus_index import open_index
from app.locations import Locations
from app.runtime import idle_encoding
from app.runtime.deletion import forget_import
from app.runtime.idle_encoding import EncodingProgress, encode_when_idle
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.dense.index import DenseIndex, DenseStatus
from datastores.dense.store import DenseStore
from datastores.dense.worker import DenseWorker
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from tests.app.scripted import scripted_engine
from tests.engines.scripted import VOCABULARY, WIDTH, ScriptedTarget

BUDGET = 2**22
pytestmark = pytest.mark.usefixtures("small_sample")


@pytest.fixture
def locations(locations: Locations) -> Locations:
    locations.states.mkdir()
    return locations


@pytest.fixture
def engine(tmp_path: Path, locations: Locations) -> Iterator[Engine]:
    made = scripted_engine(tmp_path)
    store = DenseStore.open(locations.states / "scripted.db", "scripted", WIDTH)
    made.resources.dense = DenseWorker(store, VOCABULARY)
    yield made
    made.resources.close()
    assert made.resources.dense.error is None


def _import(engine: Engine, locations: Locations, texts: dict[str, str]) -> None:
    """Texts by their import, tokenised too."""
    with closing(Library.open(locations.library)) as library:
        library.write(
            [
                StoreDocument(name, "f", 0, Document(name, (Part(NOTES, text),)))
                for name, text in texts.items()
            ]
        )
    with open_index(locations, engine.vocabulary, BUDGET) as projection:
        list(projection.run())


def _worker(engine: Engine) -> DenseWorker:
    assert engine.resources.dense is not None
    return engine.resources.dense


def _status(engine: Engine) -> DenseStatus:
    return _worker(engine).ask(DenseIndex.status)


def _say(history: History, *texts: str, private: bool = False) -> int:
    """A chat in which these were said in turns."""
    chat, parent = history.create_chat(private=private).id, None
    for number, text in enumerate(texts):
        role = ASSISTANT if number % 2 else USER
        parent = history.add_message(chat, parent, role, text).id
    return chat


TEXTS = {"/a": "how to tie knots " * 30, "/b": "the sea and its weather " * 20, "/c": "x"}


def test_imports_and_chats_are_read_to_the_end(
    engine: Engine, locations: Locations, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_encoding, "BATCH_TOKENS", 100)
    monkeypatch.setattr(idle_encoding, "MIN_NOTICED_TOKENS", 100)
    _import(engine, locations, TEXTS)
    _say(history, "what is a bowline?", "a knot that holds")
    told = [each for each in encode_when_idle(engine, locations, history, texts=True) if each]
    status = _status(engine)
    asked = 2 + len("what is a bowline?" + "a knot that holds") + 1
    assert status.positions == sum(max(0, len(t) - 1) for t in TEXTS.values()) + asked - 1
    assert status.keys == status.positions == len(_worker(engine).memory)
    shares = [each.done / each.total for each in told]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    assert all(each.imports and each.noticed for each in told)
    again = list(encode_when_idle(engine, locations, history, texts=True))
    assert {each for each in again if each} == {EncodingProgress(*_all(status), False, False)}


def _all(status: DenseStatus) -> tuple[int, int]:
    return status.keys, status.positions


@pytest.mark.parametrize("stops", [[0], [1, 2, 5, 9]])
def test_what_was_left_is_taken_up(
    engine: Engine, locations: Locations, history: History, stops: list[int]
) -> None:
    _import(engine, locations, TEXTS)
    for patience in [*stops, 10_000]:
        work = encode_when_idle(engine, locations, history, texts=True)
        for _ in zip(range(patience), work, strict=False):
            pass
        work.close()
    status = _status(engine)
    assert status.keys == status.positions == sum(max(0, len(t) - 1) for t in TEXTS.values())


def test_a_forgotten_import_and_a_deleted_chat_leave_the_index(
    engine: Engine, locations: Locations, history: History
) -> None:
    _import(engine, locations, TEXTS)
    chat = _say(history, "what is a bowline?", "a knot that holds")
    list(encode_when_idle(engine, locations, history, texts=True))
    with closing(Library.open(locations.library)) as library:
        library.forget("/a")
    history.delete_chat(chat)
    list(encode_when_idle(engine, locations, history, texts=True))
    assert _status(engine).positions == len(TEXTS["/b"]) - 1


def test_what_another_process_deletes_is_drafted_from_no_more(
    engine: Engine, locations: Locations, history: History
) -> None:
    _import(engine, locations, TEXTS)
    list(encode_when_idle(engine, locations, history, texts=True))
    held = _worker(engine).ask(lambda index: len(index._memory.texts()))
    with closing(Library.open(locations.library)) as library:
        forget_import(library, history, locations, "/a")
    list(encode_when_idle(engine, locations, history, texts=True))
    assert _worker(engine).ask(lambda index: len(index._memory.texts())) == held - 1


def test_secrets_and_private_chats_are_not_read(
    engine: Engine, locations: Locations, history: History
) -> None:
    _say(history, "what is a bowline?", "a knot", private=True)
    _say(history, "my key is sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL", "a knot")
    list(encode_when_idle(engine, locations, history, texts=True))
    assert _status(engine).positions == 0


def test_a_chat_that_was_recorded_live_is_not_read_twice(
    engine: Engine, locations: Locations, history: History
) -> None:
    chat = _say(history, "what is a bowline?", "a knot that holds")
    _worker(engine).begin(owner_of_chat(history.name, chat), [1, 2, 3])
    list(encode_when_idle(engine, locations, history, texts=True))
    assert _status(engine).positions == 2


def test_a_full_index_takes_no_more_texts(
    engine: Engine, locations: Locations, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_encoding, "BATCH_TOKENS", 100)
    monkeypatch.setattr(idle_encoding, "MAX_POSITIONS", 1)
    _import(engine, locations, TEXTS)
    list(encode_when_idle(engine, locations, history, texts=True))
    assert 0 < _status(engine).positions < sum(len(text) for text in TEXTS.values()) - 3


def test_without_an_index_there_is_nothing_to_read(
    tmp_path: Path, locations: Locations, history: History
) -> None:
    bare = scripted_engine(tmp_path)
    assert list(encode_when_idle(bare, locations, history, texts=True)) == []


def test_nothing_is_encoded_while_somebody_else_uses_the_model(
    engine: Engine, locations: Locations, history: History
) -> None:
    _import(engine, locations, TEXTS)
    target = engine.target
    assert isinstance(target, ScriptedTarget)
    work = encode_when_idle(engine, locations, history, texts=True)
    with engine.busy:
        for _ in zip(range(30), work, strict=False):
            assert target.passes == 0
    list(work)
    status = _status(engine)
    assert target.passes > 0
    assert status.keys + status.held == status.positions
    assert engine.busy.acquire(blocking=False)


def test_a_secret_in_the_system_prompt_keeps_a_chat_out(
    engine: Engine, locations: Locations, history: History
) -> None:
    chat = _say(history, "what is a bowline?", "a knot that holds")
    history.set_system(chat, "the key is AKIAIOSFODNN7EXAMPLE")
    list(encode_when_idle(engine, locations, history, texts=True))
    assert _status(engine).positions == 0
