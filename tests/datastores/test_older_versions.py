"""Data of every earlier version opens: the history and the replay buffer whole, caches empty."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.chats.presets import Preset, Presets
from datastores.chats.records import Attached
from datastores.chats.search import search
from datastores.crest.store import CrestStore
from datastores.dense.store import DenseStore
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from datastores.replay_buffer.states import NO_STATES
from tests.datastores.crest.test_store import words
from tests.datastores.older import older_database
from tests.datastores.replay_buffer.records import open_buffer, record
from tests.datastores.replay_buffer.test_record import same


@pytest.mark.parametrize("version", range(1, 9))
def test_a_history_keeps_its_chats(tmp_path: Path, version: int) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(older_database("history", version))
    with closing(History.open(path)) as history:
        assert history.store.quarantined is None
        lighthouse, private = sorted(history.chats(), key=lambda chat: chat.id)
        assert (lighthouse.title, lighthouse.pinned, lighthouse.active) == (
            "The officer's lighthouse",
            True,
            2,
        )
        assert (lighthouse.system, lighthouse.sampling) == ("Be brief.", {"temperature": 0.5})
        assert (lighthouse.created, lighthouse.updated) == (10.5, 20.5)
        assert private.private
        assert private.docs == ("off" if version >= 5 else "")
        question, answer, other = history.tree(1)
        assert (answer.parent, answer.tokens, answer.model) == (1, (5, 6, 7), "model")
        assert (answer.statistics, other.finish) == ({"tokens": 3}, "interrupted")
        attached = (Attached("a.txt", 5, 1, 0, 5),)
        assert question.attachments == (attached if version >= 6 else ())
        assert [hit.message for hit in search(history, "officer")] == [None, 1]
        assert [hit.chat for hit in search(history, "粉刷")] == [2]
        assert history.create_chat().id == 10, "the id of a deleted chat is not given again"
        names = [row["name"] for row in history.store.rows("SELECT name FROM history")]
        assert len(names) == 1
        assert (names == ["abcdef012345"]) == (version >= 4)


@pytest.mark.parametrize("version", range(3, 9))
def test_a_history_keeps_its_presets(tmp_path: Path, version: int) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(older_database("history", version))
    with closing(History.open(path)) as history:
        assert Presets(history).all() == [Preset("terse", "Be brief.", {})]


def test_a_replay_buffer_keeps_its_records(tmp_path: Path) -> None:
    path = tmp_path / "replay.db"
    path.write_bytes(older_database("replay", 1))
    with closing(open_buffer(path)) as buffer:
        assert buffer.identity == "8f47512ee6e0d6e7"
        (kept,) = buffer.records()
        assert kept.id == 2
        assert same(kept, replace(record(1), states=NO_STATES))
        assert buffer.add("chat:h:1", record(3)) == 3
        assert len(list(buffer.records())) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_an_n_gram_store_begins_anew(tmp_path: Path, version: int) -> None:
    path = tmp_path / "crest.db"
    path.write_bytes(older_database("crest", version))
    with closing(CrestStore.open(path, 1 << 20)) as store:
        assert store.store.quarantined is None
        assert store.unknown([b"d" * 32]) == [b"d" * 32]
        assert store.update([words(1)])


def test_a_dense_index_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "dense.db"
    path.write_bytes(older_database("dense", 1))
    with closing(DenseStore.open(path, "model", 8)) as store:
        assert store.store.quarantined is None
        assert store.counts() == (0, 0)
        assert store.add_texts("chat", [[1, 2, 3]]) == [1]


@pytest.mark.parametrize("version", range(1, 6))
def test_passages_begin_anew(tmp_path: Path, version: int) -> None:
    path = tmp_path / "passages.db"
    path.write_bytes(older_database("passages", version))
    with closing(PassageStore.open(path)) as store:
        assert store.store.quarantined is None
        assert store.empty
        store.add(b"k" * 32, [(0, Chunk("Mill", 1, 1, "The mill is white."))])
        assert len(store) == 1
