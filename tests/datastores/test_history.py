"""Chats as trees of messages: nothing overwritten, nothing lost, and words that find them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
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

from datastores.errors import InputError, StoreError
from datastores.history import History
from datastores.records import ASSISTANT, STREAMING, USER, WHOLE, Chat, Message
from datastores.tokens import pack, unpack


def test_a_message_comes_back_as_it_was_given(history: History) -> None:
    chat = history.create_chat("title", private=True, system="Be brief.", sampling={"top_k": 5})
    tokens = (0, 1, 2**16, 2**32 - 1)
    figures = {"tokens": 4, "by_source": {"prompt": 2}}
    message = history.add_message(
        chat.id,
        None,
        ASSISTANT,
        "a\x00b \x1b[31m é 😀",
        tokens=tokens,
        model="m",
        tokenizer="t",
        finish="length",
        statistics=figures,
    )
    assert history.message(message.id) == message
    assert message == Message(
        id=message.id,
        chat=chat.id,
        parent=None,
        role=ASSISTANT,
        content="a\x00b \x1b[31m é 😀",
        tokens=tokens,
        model="m",
        tokenizer="t",
        finish="length",
        statistics=figures,
        created=message.created,
    )
    kept = history.chat(chat.id)
    assert (kept.title, kept.private, kept.system) == ("title", True, "Be brief.")
    assert (kept.sampling, kept.active) == ({"top_k": 5}, message.id)


def test_token_ids_take_four_bytes_low_byte_first() -> None:
    assert pack([1, 258]) == b"\x01\0\0\0\x02\x01\0\0"
    assert unpack(pack([])) == ()


@pytest.mark.parametrize("token", [-1, 2**32])
def test_a_token_id_that_does_not_fit_is_refused(token: int) -> None:
    with pytest.raises(OverflowError):
        pack([token])


def test_lone_surrogates_are_replaced_since_no_file_can_hold_them(history: History) -> None:
    chat = history.create_chat("\ud800 title")
    message = history.add_message(chat.id, None, USER, "a\udcffb")
    assert (chat.title, message.content) == ("\ufffd title", "a\ufffdb")


def test_an_edit_and_a_second_answer_become_siblings(history: History) -> None:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "question")
    answer = history.add_message(chat, question.id, ASSISTANT, "answer")
    second = history.add_message(chat, question.id, ASSISTANT, "second answer")
    edited = history.add_message(chat, None, USER, "edited question")
    assert [message.id for message in history.siblings(answer.id)] == [answer.id, second.id]
    assert [message.id for message in history.siblings(edited.id)] == [question.id, edited.id]
    assert history.thread(chat) == [edited]
    history.set_active(chat, history.leaf_below(question.id))
    assert history.thread(chat) == [question, second]
    history.set_active(chat, answer.id)
    assert history.thread(chat) == [question, answer]
    assert history.path(question.id) == [question]


def test_versions_are_numbered_and_walked_through(history: History) -> None:
    chat = history.create_chat().id
    first = [history.add_message(chat, None, USER, text).id for text in ("one", "two", "three")]
    below = history.add_message(chat, first[1], ASSISTANT, "answer to two").id
    others = [history.add_message(chat, below, USER, text).id for text in ("a", "b")]
    assert history.versions(chat) == {
        **dict.fromkeys(first, tuple(first)),
        **dict.fromkeys(others, tuple(others)),
    }
    history.switch(first[0])
    assert [message.content for message in history.thread(chat)] == ["one"]
    history.switch(first[1])
    assert [message.content for message in history.thread(chat)] == ["two", "answer to two", "b"]


def test_a_found_message_is_brought_in_view_and_one_in_view_moves_nothing(
    history: History,
) -> None:
    chat = history.create_chat().id
    first = history.add_message(chat, None, USER, "first")
    older = history.add_message(chat, first.id, ASSISTANT, "older answer")
    newer = history.add_message(chat, first.id, ASSISTANT, "newer answer")
    history.set_active(chat, older.id)
    history.bring_in_view(first.id)
    assert history.thread(chat) == [first, older]
    history.bring_in_view(newer.id)
    assert history.thread(chat) == [first, newer]
    with pytest.raises(InputError, match="no message 99"):
        history.bring_in_view(99)


def test_siblings_stay_within_their_chat(history: History) -> None:
    first, second = history.create_chat().id, history.create_chat().id
    message = history.add_message(first, None, USER, "here")
    history.add_message(second, None, USER, "there")
    assert history.siblings(message.id) == [message]


def test_a_parent_must_lie_in_the_same_chat(history: History) -> None:
    first, second = history.create_chat().id, history.create_chat().id
    message = history.add_message(first, None, USER, "here")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        history.add_message(second, message.id, USER, "there")
    with pytest.raises(InputError, match="no message"):
        history.set_active(second, message.id)
    assert history.thread(second) == []


def test_chats_are_listed_pinned_first_then_newest(history: History) -> None:
    old, middle, new = (history.create_chat(title).id for title in ("old", "middle", "new"))
    history.pin(old, True)
    history.add_message(middle, None, USER, "written last")
    assert [chat.id for chat in history.chats()] == [old, middle, new]
    assert history.last_chat().id == middle
    history.pin(old, False)
    assert [chat.id for chat in history.chats()] == [middle, new, old]


def test_a_chat_keeps_what_is_set(history: History) -> None:
    chat = history.create_chat().id
    history.rename(chat, "new name")
    history.set_private(chat, True)
    history.set_system(chat, "Rhyme.")
    history.set_sampling(chat, {"temperature": 0.0})
    kept = history.chat(chat)
    assert (kept.title, kept.private, kept.system) == ("new name", True, "Rhyme.")
    assert kept.sampling == {"temperature": 0.0}


def test_what_does_not_exist_is_named(history: History) -> None:
    with pytest.raises(InputError, match="no chat to continue yet"):
        history.last_chat()
    chat = history.create_chat().id
    with pytest.raises(InputError, match="there is no chat 99"):
        history.rename(99, "x")
    with pytest.raises(InputError, match="there is no chat 99"):
        history.add_message(99, None, USER, "x")
    with pytest.raises(InputError, match="there is no message 99"):
        history.add_message(chat, 99, USER, "x")
    with pytest.raises(InputError, match="there is no message 99"):
        history.extend_message(99, "x", [], {})
    with pytest.raises(InputError, match="there is no message 99"):
        history.leaf_below(99)
    with pytest.raises(StoreError, match="CHECK constraint failed: role"):
        history.add_message(chat, None, "tool", "x")


def test_two_windows_see_each_other(history: History, tmp_path: Path) -> None:
    window = History.open(tmp_path / "history.db")
    chat = history.create_chat("from the first").id
    message = window.add_message(chat, None, USER, "from the second")
    assert history.thread(chat) == [message]
    window.close()


def test_a_long_chat_has_one_long_thread(history: History) -> None:
    chat, parent = history.create_chat().id, None
    with history.store.writing() as db:
        for number in range(1, 3001):
            db.conn.execute(
                "INSERT INTO messages (chat, parent, role, content, tokens, finish, created) "
                "VALUES (?, ?, 'user', ?, x'', 'stop', 0)",
                (chat, parent, f"message {number}"),
            )
            parent = number
    history.set_active(chat, 3000)
    thread = history.thread(chat)
    assert [message.id for message in thread] == list(range(1, 3001))
    with history.store.writing() as db:
        db.conn.execute("DELETE FROM chats")
    assert history.store.rows("SELECT * FROM messages") == []


def _found(history: History, word: str) -> list[int]:
    sql = "SELECT rowid AS id FROM messages_text WHERE messages_text MATCH ? ORDER BY id"
    return [row["id"] for row in history.store.rows(sql, (word,))]


def test_words_are_found_once_an_answer_is_finished_and_no_longer(history: History) -> None:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "where is the walrus")
    answer = history.add_message(chat, question.id, ASSISTANT, "", finish=STREAMING)
    history.extend_message(answer.id, "the walrus", [1], {})
    assert _found(history, "walrus") == [question.id]
    history.extend_message(answer.id, "the walrus is asleep", [1, 2], {}, WHOLE)
    assert _found(history, "walrus") == [question.id, answer.id]
    with history.store.writing() as db:
        db.conn.execute("DELETE FROM chats WHERE id = ?", (chat,))
    assert _found(history, "walrus") == []


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=5)


Added = Message | MultipleResults[Message]


class Trees(RuleBasedStateMachine):
    """The history against plain dictionaries, through any order of operations."""

    chats = Bundle("chats")
    messages = Bundle("messages")
    growing = Bundle("growing")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="specchat-")
        self.history = History.open(Path(self.directory.name) / "history.db")
        self.kept: dict[int, Message] = {}
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
    def reply(self, parent: Message, text: str, tokens: list[int]) -> Added:
        return self._add(parent.chat, parent.id, text, tokens, WHOLE)

    @rule(target=growing, parent=messages)
    def start_answer(self, parent: Message) -> Added:
        return self._add(parent.chat, parent.id, "", [], STREAMING)

    @rule(message=growing, text=_TEXT, finish=st.sampled_from([STREAMING, WHOLE, "interrupted"]))
    def grow(self, message: Message, text: str, finish: str) -> None:
        if message.id not in self.kept:
            return
        self.history.extend_message(message.id, text, [7], {"tokens": 1}, finish)
        self.kept[message.id] = self.history.message(message.id)
        assert self.kept[message.id].content == text

    @rule(message=messages)
    def walk(self, message: Message) -> None:
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
        unfinished = [kept for kept in self.kept.values() if kept.finish == STREAMING]
        with self.history.store.writing() as db:
            # The check compares with every row, unfinished answers included: leave those out.
            db.conn.executemany(
                "UPDATE messages SET finish = 'stop' WHERE id = ?",
                [(message.id,) for message in unfinished],
            )
            db.conn.execute(
                "INSERT INTO messages_text (messages_text, rank) VALUES ('integrity-check', 1)"
            )
            db.conn.executemany(
                "UPDATE messages SET finish = '' WHERE id = ?",
                [(message.id,) for message in unfinished],
            )

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

    def _path(self, leaf: int | None) -> list[Message]:
        path: list[Message] = []
        while leaf is not None:
            path.insert(0, self.kept[leaf])
            leaf = path[0].parent
        return path


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=15, stateful_step_count=20)
