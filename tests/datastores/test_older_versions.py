"""Data of every earlier version opens: the history and the replay buffer whole, caches empty."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from datastores.chats.history import History, restore_chat
from datastores.chats.presets import Preset, Presets
from datastores.chats.records import Attached
from datastores.chats.search import search
from datastores.chats.usage import daily_usage
from datastores.crest.store import CrestStore
from datastores.dense.store import DenseStore
from datastores.library.library import Library
from datastores.passages.chunks import Chunk
from datastores.passages.store import PassageStore
from datastores.replay_buffer.states import NO_STATES
from datastores.suffix_reader import SuffixReader
from datastores.token_cache import TokenCache
from tests.datastores.crest.test_store import words
from tests.datastores.older import older_database
from tests.datastores.replay_buffer.records import open_buffer, record
from tests.datastores.replay_buffer.test_record import same


@pytest.mark.parametrize("version", range(1, 10))
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


FORMER_FIGURES = {
    "tokens": 9,
    "target_calls": 4,
    "call_tokens": 8,
    "by_source": {"student": 3, "chats": 1},
    "drafted_by_source": {"student": 5},
    "sources": [[3, "student"], [2, ""]],
    "student_version": 2,
    "student_compared": 5,
    "student_matched": 4,
    "citations": [{"source": "/student", "file": "source", "first_line": 1, "last_line": 2}],
}
PRESENT_FIGURES = {
    "tokens": 9,
    "steps": 4,
    "step_tokens": 8,
    "by_origin": {"draft-model": 3, "chats": 1},
    "drafted_by_origin": {"draft-model": 5},
    "origins": [[3, "draft-model"], [2, ""]],
    "draft_model_version": 2,
    "draft_model_compared": 5,
    "draft_model_matched": 4,
    "citations": [{"import_path": "/student", "file": "source", "first_line": 1, "last_line": 2}],
}


def test_figures_of_answers_get_their_present_names(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(older_database("history", 8))
    damaged = '{"by_source": '
    with closing(sqlite3.connect(path)) as connection:
        change = "UPDATE messages SET statistics = ? WHERE id = ?"
        connection.execute(change, (json.dumps(FORMER_FIGURES), 2))
        connection.execute(change, (damaged, 3))
        connection.commit()
    for _ in range(2):
        with closing(History.open(path)) as history:
            rows = history.store.rows("SELECT statistics FROM messages WHERE id IN (2, 3)")
            kept, unreadable = (row["statistics"] for row in rows)
            assert json.loads(kept) == PRESENT_FIGURES
            assert unreadable == damaged
            assert daily_usage(history)[0].usage.by_origin == {"draft-model": 3, "chats": 1}


def test_a_restored_chat_gets_their_present_names_too(tmp_path: Path) -> None:
    with closing(History.open(tmp_path / "history.db")) as history:
        chat = history.create_chat("title")
        message = history.add_message(chat.id, None, "user", "question")
        answer = replace(message, role="assistant", statistics=FORMER_FIGURES)
        restored = restore_chat(history, replace(chat, active=None), [answer])
        assert history.tree(restored.id)[0].statistics == PRESENT_FIGURES


@pytest.mark.parametrize("version", range(3, 9))
def test_a_history_keeps_its_presets(tmp_path: Path, version: int) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(older_database("history", version))
    with closing(History.open(path)) as history:
        assert Presets(history).all() == [Preset("terse", "Be brief.", {})]


def test_a_library_keeps_its_imports_and_names_them(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    path.write_bytes(older_database("library", 1))
    with closing(Library.open(path)) as library:
        assert library.store.quarantined is None
        assert library.names() == {
            "/home/u/chats.json": "chats.json",
            "/home/u/notes": "notes",
            "/work/notes": "work/notes",
        }
        assert all(stored.whole for stored in library.imports())
        (place,) = library.places(library.texts_in("/home/u/chats.json", "chats.json")[0])
        assert (place.title, place.kind) == ("A walrus", "chats")
        library.rename("/work/notes", "office")
    with closing(Library.open(path)) as library:
        assert library.names()["/work/notes"] == "office"


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


def test_a_token_cache_keeps_its_texts_and_indexes_them(tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    path.write_bytes(older_database("tokens", 1))
    with closing(TokenCache.open(path)) as cache:
        assert cache.store.quarantined is None
        assert cache.keys() == [b"k" * 32, b"message abcdef 7"]
        (imported,) = cache.read([b"k" * 32])
        assert [span.kind for span in imported.spans] == [1, 3]
        assert imported.spans[1].tokens.tolist() == list(range(200, 240))
        assert cache.index_due()
        cache.index_next(1 << 20)
        assert not cache.index_due()
    with closing(SuffixReader(path)) as reader:
        (match,) = reader.lookup(list(range(70_000, 70_020)))
        assert match.following == list(range(70_020, 70_040))


@pytest.mark.parametrize("version", range(1, 10))
def test_passages_begin_anew(tmp_path: Path, version: int) -> None:
    path = tmp_path / "passages.db"
    path.write_bytes(older_database("passages", version))
    with closing(PassageStore.open(path)) as store:
        assert store.store.quarantined is None
        assert store.empty
        store.add(b"k" * 32, [(0, Chunk("Mill", 1, 1, "The mill is white."))])
        assert len(store) == 1
