"""Deleting and making private: every store is told, whatever another one does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.conversation.assistant import Assistant
from app.conversation.privacy import TEXT_PREFIX, owner_of_chat, owner_of_text
from app.indexing.corpus_index import open_index
from app.locations import Locations
from app.runtime import deletion
from app.runtime.deletion import delete_chat, erase_deleted, forget_import, make_private
from datastores.chats.history import History
from datastores.chats.records import USER
from datastores.dense.index import DenseIndex
from datastores.dense.store import DenseStore, TextTokens
from datastores.dense.worker import DenseWorker
from datastores.errors import InputError, StoreError
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.replay_buffer.store import ReplayBuffer
from tests.app.characters import BUDGET, SENTENCE, Characters
from tests.app.scripted import drafted, scripted_engine
from tests.datastores.replay_buffer.records import record

Act = Callable[[History, Locations, int], None]


VOCABULARIES = (Characters(), Characters("other", offset=70_000))


def _chats(history: History, locations: Locations) -> tuple[int, int]:
    """Two chats, in the stores of two tokenizers and of two models: one to go, one to stay."""
    gone, kept = history.create_chat("t").id, history.create_chat("t").id
    for number in range(30):
        history.add_message(gone, None, USER, f"{SENTENCE} {number}")
        history.add_message(kept, None, USER, "abc" * 20)
    for vocabulary in VOCABULARIES:
        with open_index(locations, vocabulary, BUDGET) as projection:
            list(projection.run())
    locations.states.mkdir()
    for model in ("one", "two"):
        with closing(DenseStore.open(locations.states / f"{model}.db", model, 4)) as dense:
            for chat, text in ((gone, SENTENCE), (kept, "abc" * 20)):
                document = dense.create_text(owner_of_chat(history.name, chat))
                dense.write([TextTokens(document, 0, VOCABULARIES[0].encode(text))])
    locations.replay.mkdir()
    for model in ("three", "four"):
        with closing(_buffer(locations, model)) as buffer:
            for chat, text in ((gone, SENTENCE), (kept, "abc" * 20)):
                tokens = np.array(VOCABULARIES[0].encode(text), np.int32)
                answer = replace(record(rows=0), tokens=tokens, prompt_length=1)
                buffer.add(owner_of_chat(history.name, chat), answer)
    return gone, kept


def _buffer(locations: Locations, model: str) -> ReplayBuffer:
    path = locations.replay / f"{model}.db"
    return ReplayBuffer.open(path, model, VOCABULARIES[0].size)


def _traces() -> list[bytes]:
    """The sentence, and two letters that no other text has, in every form that ids are kept in."""
    traces = [SENTENCE.encode()]
    for vocabulary in VOCABULARIES:
        ids = np.array(vocabulary.encode("wa"), dtype="<u4")
        bytewise = ids.view(np.uint8).reshape(-1, 4)
        traces += [bytewise[:, :width].tobytes() for width in (3, 4)]
    return traces


def _holding(folder: Path, *, besides: str = "") -> set[str]:
    return {
        file.name
        for file in folder.rglob("*")
        if file.is_file() and not (besides and file.name.startswith(besides))
        for trace in _traces()
        if trace in file.read_bytes()
    }


def test_a_deleted_chat_leaves_every_file(history: History, locations: Locations) -> None:
    gone, kept = _chats(history, locations)
    held = {name.removesuffix("-wal") for name in _holding(locations.data)}
    assert {"history.db", "tokens.db", "one.db", "two.db", "three.db", "four.db"} <= held
    delete_chat(history, locations, gone)
    assert _holding(locations.data) == set()
    assert [chat.id for chat in history.chats()] == [kept]
    assert not history.erase(), "it is erased already"
    for model in ("one", "two"):
        with closing(DenseStore.open(locations.states / f"{model}.db", model, 4)) as dense:
            assert len(list(dense.token_streams())) == 1
    for model in ("three", "four"):
        with closing(_buffer(locations, model)) as buffer:
            assert len(list(buffer.records())) == 1
            assert buffer.removed_since(buffer.last_id, 0)


def test_a_chat_made_private_stays_in_the_history_alone(
    history: History, locations: Locations
) -> None:
    gone, _ = _chats(history, locations)
    make_private(history, locations, gone)
    assert _holding(locations.data, besides="history.db") == set()
    assert history.chat(gone).private
    assert len(history.tree(gone)) == 30


def test_a_damaged_index_that_was_set_aside_goes_too(
    history: History, locations: Locations
) -> None:
    gone, _ = _chats(history, locations)
    index = locations.states / "one.db"
    (locations.states / "one.db.corrupt-20260101-000000").write_bytes(index.read_bytes())
    delete_chat(history, locations, gone)
    assert list(locations.states.glob("*corrupt*")) == []


def test_a_loaded_engine_forgets_as_well(
    history: History, locations: Locations, tmp_path: Path
) -> None:
    engine = scripted_engine(tmp_path, drafters=("recycle",))
    list(Assistant(engine, history).answer(history.create_chat().id, None, "hello"))
    assert drafted(engine) > 0
    asked: list[object] = []
    with closing(DenseStore.open(tmp_path / "one.db", "one", 4)) as store:
        worker = DenseWorker(store, 64)
        worker.begin(owner_of_chat(history.name, 1), [1, 2, 3])
        engine.resources.dense = worker
        delete_chat(history, locations, 1, engine)
        worker.ask(lambda index: asked.extend(index.backlog()))
        worker.close()
    assert asked == []
    assert drafted(engine) == 0


def test_a_loaded_engine_forgets_an_import(history: History, locations: Locations) -> None:
    engine = scripted_engine(locations.data, drafters=())
    locations.states.mkdir()
    with closing(Library.open(locations.library)) as library:
        for path, text in (("/gone", SENTENCE), ("/kept", "abc")):
            library.write([StoreDocument(path, "f", 0, Document("t", (Part(NOTES, text),)))])
        worker = DenseWorker(DenseStore.open(locations.states / "one.db", "one", 4), 64)
        engine.resources.dense = worker
        for digest in library.digests():
            (part,) = library.read(digest)
            tokens = VOCABULARIES[0].encode(part.text)
            add = partial(DenseIndex.add_text, owner=owner_of_text(digest), tokens=tokens)
            worker.ask(add)
        forget_import(library, history, locations, "/gone", engine)
        [kept] = library.digests()
        assert worker.ask(lambda index: index.owners(TEXT_PREFIX)) == {owner_of_text(kept)}
        assert len(worker.memory.texts()) == 1
        assert _holding(locations.data) == set()
        worker.close()


def test_an_import_is_forgotten_while_another_model_is_loaded(
    history: History, locations: Locations
) -> None:
    engine = scripted_engine(locations.data, drafters=())
    locations.states.mkdir()
    with closing(Library.open(locations.library)) as library:
        library.write([StoreDocument("/gone", "f", 0, Document("t", (Part(NOTES, SENTENCE),)))])
        worker = DenseWorker(DenseStore.open(locations.states / "one.db", "one", 4), 64)
        engine.resources.dense = worker
        (digest,) = library.digests()
        tokens = VOCABULARIES[0].encode(SENTENCE)
        add = partial(DenseIndex.add_text, owner=owner_of_text(digest), tokens=tokens)
        worker.ask(add)
        worker.close()
        forget_import(library, history, locations, "/gone", engine)
        assert list(library.digests()) == []
    assert _holding(locations.data) == set()


class Memory:
    """A kind of store that remembers chats by their ids."""

    def __init__(self, history: History) -> None:
        self.chats = {chat.id for chat in history.chats()}
        self.failing = False

    def forget(self, _: Locations, history: History) -> None:
        if self.failing:
            raise StoreError("hindered")
        self.chats &= {chat.id for chat in history.chats() if not chat.private}


@pytest.mark.parametrize("act", [delete_chat, make_private])
@pytest.mark.parametrize("failing", [0, 1])
def test_one_store_that_is_hindered_keeps_no_other_from_forgetting(
    history: History,
    locations: Locations,
    monkeypatch: pytest.MonkeyPatch,
    act: Act,
    failing: int,
) -> None:
    gone, kept = history.create_chat().id, history.create_chat().id
    stores = [Memory(history), Memory(history)]
    stores[failing].failing = True
    monkeypatch.setattr(deletion, "ERASERS", [store.forget for store in stores])
    with pytest.raises(StoreError, match="hindered"):
        act(history, locations, gone)
    assert stores[1 - failing].chats == {kept}
    assert not history.erase(), "it is erased already"
    stores[failing].failing = False
    erase_deleted(history, locations)
    assert stores[failing].chats == {kept}


@pytest.mark.parametrize("act", [delete_chat, make_private])
def test_what_is_not_there_is_named(history: History, locations: Locations, act: Act) -> None:
    with pytest.raises(InputError, match="no chat 99"):
        act(history, locations, 99)
