"""Erasing among other processes: killed anywhere, or while they write, it costs nobody a row."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.chats.records import USER, WHOLE, WORD_INDEXES
from tests.datastores.chats.test_deletion import holding

KILLED = 9

ERASER = """
import os, sys
from pathlib import Path
from datastores.chats.history import History
history, left = History.open(Path(sys.argv[1])), int(sys.argv[2])
def step():
    global left
    left -= 1
    return os._exit(9) if not left else 0
history.store.db.conn.set_progress_handler(step, 20)
history.erase()
os._exit(0)
"""
"""Erases, and dies in the middle of a statement, without closing anything, after so many steps."""

WRITER = """
import sys
from pathlib import Path
from datastores.chats.history import History
history, chat, number = History.open(Path(sys.argv[1])), int(sys.argv[2]), 0
history.store.db.conn.execute("PRAGMA synchronous = OFF")
while True:
    history.rename(chat, f"title {number}")
    print(number, flush=True)
    number += 1
"""
"""Gives a chat one title after the other, and prints the number of each that is stored."""


class ModelledHistory:
    """A history, and in memory what it must hold; every chat has words of its own."""

    def __init__(self, history: History, seed: int) -> None:
        self.history = history
        self.random = random.Random(seed)
        self.words: dict[int, str] = {}
        self.titles: dict[int, str] = {}
        self.messages: dict[int, dict[int, str]] = {}
        self.deleted: list[str] = []

    def create(self) -> None:
        chat = self.history.create_chat().id
        self.words[chat] = "".join(self.random.choices("bcdfghjklmnp", k=12))
        self.titles[chat], self.messages[chat] = "", {}

    def change(self) -> None:
        """Rename a chat, or write, extend or shorten one of its messages."""
        chat = self.random.choice(list(self.words))
        text = f"{self.words[chat]} and " * self.random.choice([0, 1, 5, 30, 200])
        known = self.messages[chat]
        match self.random.randrange(3):
            case 0:
                self.history.rename(chat, text)
                self.titles[chat] = text
            case 1:
                parent = self.random.choice([None, *known])
                tokens = range(self.random.choice([0, 100, 900]))
                stored = self.history.add_message(chat, parent, USER, text, tokens=tokens)
                known[stored.id] = text
            case _ if known:
                message = self.random.choice(list(known))
                self.history.extend_message(message, text, [1], {}, WHOLE)
                known[message] = text

    def delete(self) -> None:
        chat = self.random.choice(list(self.words))
        self.history.delete_chat(chat)
        self.deleted.append(self.words.pop(chat))
        del self.titles[chat], self.messages[chat]

    def require_stored(self) -> None:
        """Every row is there and nothing else, and SQLite finds no fault."""
        history = self.history
        assert {chat.id: chat.title for chat in history.chats()} == self.titles
        for chat, messages in self.messages.items():
            assert {one.id: one.content for one in history.tree(chat)} == messages
        assert history.store.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        for index in WORD_INDEXES:
            with history.store.writing() as db:
                db.conn.execute(f"INSERT INTO {index}({index}, rank) VALUES('integrity-check', 1)")


@contextmanager
def _started(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("seed", range(3))
def test_an_erasure_that_is_killed_loses_nothing_and_is_completed_later(
    history: History, tmp_path: Path, seed: int
) -> None:
    history.store.db.conn.execute("PRAGMA synchronous = OFF")
    model = ModelledHistory(history, seed)
    for _ in range(20):
        model.create()
    for _ in range(150):
        model.change()
    for _ in range(2):
        model.delete()
        steps = model.random.randint(1, 100)
        with _started(ERASER, tmp_path / "history.db", steps) as eraser:
            for _ in range(50):
                model.change()
            assert eraser.wait() in (0, KILLED)
        model.require_stored()
    model.delete()
    assert history.erase()
    assert holding(tmp_path, *model.deleted) == []
    for _ in range(50):
        model.change()
    assert holding(tmp_path, *model.deleted) == [], "nobody had a copy in a cache"
    model.require_stored()


def test_another_process_goes_on_writing_while_chats_are_erased(
    history: History, tmp_path: Path
) -> None:
    model = ModelledHistory(history, seed=0)
    for _ in range(10):
        model.create()
    others = history.create_chat().id
    with _started(WRITER, tmp_path / "history.db", others) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        for _ in range(5):
            for _ in range(10):
                model.change()
            model.delete()
            assert history.erase()
        assert writer.poll() is None, "it waited and did not fail"
        writer.kill()
        stored = int(writer.stdout.read().split()[-1])
    assert history.chat(others).title in (f"title {stored}", f"title {stored + 1}")
    assert holding(tmp_path, *model.deleted) == []
