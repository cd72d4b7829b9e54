"""Chats as trees of messages, against plain dictionaries, through any order of operations."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from datastores.chats.history import History
from datastores.chats.records import STREAMING, USER, WHOLE, Chat, StoredMessage
from datastores.search_form import index_form

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=5)

Added = StoredMessage | MultipleResults[StoredMessage]


class Trees(RuleBasedStateMachine):
    """What can be done with a history, and what must hold after it."""

    chats = Bundle("chats")
    messages = Bundle("messages")
    growing = Bundle("growing")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="specchat-")
        self.history = History.open(Path(self.directory.name) / "history.db")
        self.kept: dict[int, StoredMessage] = {}
        self.active: dict[int, int | None] = {}

    @rule(target=chats, title=_TEXT)
    def create(self, title: str) -> Chat:
        chat = self.history.create_chat(title)
        self.active[chat.id] = None
        return chat

    @rule(target=messages, chat=chats, text=_TEXT, tokens=_TOKENS)
    def begin(self, chat: Chat, text: str, tokens: list[int]) -> Added:
        return self._add(chat.id, None, text, tokens, WHOLE)

    @rule(target=messages, parent=messages, text=_TEXT, tokens=_TOKENS)
    def reply(self, parent: StoredMessage, text: str, tokens: list[int]) -> Added:
        return self._add(parent.chat, parent.id, text, tokens, WHOLE)

    @rule(target=growing, parent=messages)
    def start_answer(self, parent: StoredMessage) -> Added:
        return self._add(parent.chat, parent.id, "", [], STREAMING)

    @rule(message=growing, text=_TEXT, finish=st.sampled_from([STREAMING, WHOLE, "interrupted"]))
    def grow(self, message: StoredMessage, text: str, finish: str) -> None:
        if message.id not in self.kept:
            return
        self.history.extend_message(message.id, text, [7], {"tokens": 1}, finish)
        self.kept[message.id] = self.history.message(message.id)
        assert self.kept[message.id].content == text

    @rule(message=messages)
    def walk(self, message: StoredMessage) -> None:
        if message.id not in self.kept:
            return
        leaf = self.history.leaf_below(message.id)
        assert message.id in [kept.id for kept in self._path(leaf)]
        assert not [kept for kept in self.kept.values() if kept.parent == leaf]
        self.history.switch(message.id)
        self.active[message.chat] = leaf

    @rule(chat=consumes(chats))
    def delete(self, chat: Chat) -> None:
        self.history.delete_chat(chat.id)
        del self.active[chat.id]
        self.kept = {key: kept for key, kept in self.kept.items() if kept.chat != chat.id}

    @rule()
    def erase(self) -> None:
        self.history.erase()
        assert not self.history.erase()

    @rule()
    def reopen(self) -> None:
        self.history.close()
        self.history = History.open(Path(self.directory.name) / "history.db")

    @invariant()
    def threads_and_siblings_agree(self) -> None:
        for chat, active in self.active.items():
            assert self.history.thread(chat) == self._path(active)
        for message in self.kept.values():
            place = (message.chat, message.parent)
            same = [kept for kept in self.kept.values() if (kept.chat, kept.parent) == place]
            assert self.history.siblings(message.id) == same
            versions = self.history.versions(message.chat).get(message.id, (message.id,))
            assert versions == tuple(kept.id for kept in same)

    @invariant()
    def the_word_index_agrees_with_the_text(self) -> None:
        connection = self.history.store.db.conn
        connection.executescript(
            """
            CREATE VIRTUAL TABLE temp.again USING fts5 (
                content, content = '',
                tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
            );
            CREATE VIRTUAL TABLE temp.found USING fts5vocab(main, messages_text, instance);
            CREATE VIRTUAL TABLE temp.expected USING fts5vocab(temp, again, instance);
            """
        )
        finished = [kept for kept in self.kept.values() if kept.finish != STREAMING]
        connection.executemany(
            "INSERT INTO temp.again (rowid, content) VALUES (?, ?)",
            [(kept.id, index_form(kept.content)) for kept in finished],
        )
        words = [
            connection.execute(f"SELECT * FROM temp.{table} ORDER BY 1, 2, 3, 4").fetchall()
            for table in ("found", "expected")
        ]
        connection.executescript("DROP TABLE found; DROP TABLE expected; DROP TABLE temp.again")
        assert words[0] == words[1]

    def teardown(self) -> None:
        self.history.close()
        self.directory.cleanup()

    def _add(
        self, chat: int, parent: int | None, text: str, tokens: list[int], finish: str
    ) -> Added:
        if chat not in self.active or (parent is not None and parent not in self.kept):
            return multiple()  # its chat is deleted
        message = self.history.add_message(chat, parent, USER, text, tokens=tokens, finish=finish)
        assert (message.content, message.tokens) == (text, tuple(tokens))
        self.kept[message.id], self.active[chat] = message, message.id
        return message

    def _path(self, leaf: int | None) -> list[StoredMessage]:
        path: list[StoredMessage] = []
        while leaf is not None:
            path.insert(0, self.kept[leaf])
            leaf = path[0].parent
        return path


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=15, stateful_step_count=20)
