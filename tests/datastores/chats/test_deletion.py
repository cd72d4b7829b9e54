"""After deleting, nothing of a chat is left: no row, no word, no byte in any file."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.chats.presets import Presets
from datastores.chats.records import ASSISTANT, STREAMING, USER, WHOLE
from datastores.chats.search import search
from datastores.errors import InputError, StoreError
from datastores.storage import erasure
from datastores.storage.sqlite import Store

SENTENCE = "the walrus keeps seventeen brass telescopes"
WORDS = ("walrus", "seventeen", "telescopes")


def holding(folder: Path, *texts: str) -> list[str]:
    """Every file that holds one of `texts`, by name; threads may remove their own meanwhile."""
    found = []
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            content = file.read_bytes()
            found += [f"{file.name}: {text}" for text in texts if text.encode() in content]
    return found


def _write(history: History, chat: int, text: str, times: int) -> None:
    """A question, and an answer that grows as answers do."""
    question = history.add_message(chat, history.chat(chat).active, USER, text)
    answer = history.add_message(chat, question.id, ASSISTANT, "", finish=STREAMING)
    for count in (times // 3, times // 2, times):
        history.extend_message(answer.id, f"{text} {count} " * count, range(count), {}, STREAMING)
    history.extend_message(answer.id, f"{text} " * times, range(times), {"tokens": times}, WHOLE)


def test_no_byte_of_a_deleted_chat_is_left_in_any_file(history: History, tmp_path: Path) -> None:
    kept = history.create_chat("kept", system="Be brief.").id
    gone = history.create_chat(SENTENCE, system=SENTENCE, sampling={"note": SENTENCE}).id
    for number in range(20):
        _write(history, kept, f"page {number}", 40)
        _write(history, gone, f"{number} {SENTENCE}", 1 + number * 8)
    history.switch(history.siblings(history.tree(gone)[1].id)[0].id)
    with closing(history.new_connection()) as other_window:
        other_window.thread(gone)
        assert holding(tmp_path, SENTENCE)
        history.delete_chat(gone)
        assert history.erase()
        assert holding(tmp_path, *WORDS) == []
        assert other_window.chats() == [history.chat(kept)]
    assert len(history.tree(kept)) == 40
    assert search(history, "walrus") == []
    assert search(history, "page 7") != []


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_rows_that_moved_between_pages_are_gone_too(
    history: History, tmp_path: Path, seed: int
) -> None:
    """Rows that grow move to other pages and may leave copies, which only rewriting removes."""
    rng = random.Random(seed)
    history.store.db.conn.execute("PRAGMA synchronous = OFF")
    chats = [history.create_chat(f"title {number}").id for number in range(300)]
    gone = chats[::4]
    with history.store.writing() as db:
        for _ in range(3000):
            chat, times = rng.choice(chats), rng.choice([0, 1, 5, 20, 100])
            text = (SENTENCE if chat in gone else "nothing of note ") * times
            column = rng.choice(["title", "system"])
            db.conn.execute(f"UPDATE chats SET {column} = ? WHERE id = ?", (text, chat))
    for chat in gone:
        history.delete_chat(chat)
    history.erase()
    assert holding(tmp_path, *WORDS) == []


def test_a_deleted_preset_leaves_nothing(history: History, tmp_path: Path) -> None:
    presets = Presets(history)
    presets.save(SENTENCE, SENTENCE, {"note": SENTENCE})
    assert holding(tmp_path, SENTENCE)
    presets.delete(SENTENCE)
    assert history.erase()
    assert holding(tmp_path, *WORDS) == []


def test_what_is_deleted_cannot_be_found_or_deleted_again(history: History) -> None:
    chat = history.create_chat("title").id
    message = history.add_message(chat, None, USER, "text")
    history.delete_chat(chat)
    assert history.chats() == []
    with pytest.raises(InputError, match=f"no chat {chat}"):
        history.delete_chat(chat)
    with pytest.raises(InputError, match=f"no message {message.id}"):
        history.message(message.id)
    with pytest.raises(InputError, match=f"no message {message.id}"):
        history.extend_message(message.id, "late", [], {})
    assert history.create_chat().id > chat, "an id is never used twice"


def test_nothing_deleted_means_nothing_to_erase(history: History) -> None:
    history.create_chat("title")
    assert not history.erase()


def test_an_erasure_that_a_reader_hinders_is_reported_and_completed_later(
    history: History, tmp_path: Path
) -> None:
    chat = history.create_chat(SENTENCE).id
    history.store.db.conn.execute("PRAGMA busy_timeout = 50")
    reader = sqlite3.connect(tmp_path / "history.db")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM chats").fetchone()
    history.delete_chat(chat)
    with pytest.raises(StoreError, match="another window"):
        history.erase()
    reader.close()
    with closing(History.open(tmp_path / "history.db")) as later:
        assert later.erase()
        assert not later.erase()
    assert holding(tmp_path, *WORDS) == []


def test_what_another_window_deletes_meanwhile_is_erased_later(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats = [history.create_chat(f"title {number}").id for number in range(2)]
    empty_log = erasure.empty_log

    def slow(store: Store) -> None:
        empty_log(store)
        with closing(history.new_connection()) as other:
            other.delete_chat(chats[1])

    history.delete_chat(chats[0])
    monkeypatch.setattr(erasure, "empty_log", slow)
    assert history.erase()
    monkeypatch.undo()
    assert history.erase(), "the other window's request"
    assert not history.erase()
