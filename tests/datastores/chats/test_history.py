"""Chats as trees of messages: nothing overwritten, nothing lost, and words that find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, STREAMING, USER, WHOLE, Attached, StoredMessage
from datastores.errors import InputError, StoreError
from datastores.tokens import pack, unpack


def test_a_message_comes_back_as_it_was_given(history: History) -> None:
    chat = history.create_chat("title", private=True, system="Be brief.", sampling={"top_k": 5})
    tokens = (0, 1, 2**16, 2**32 - 1)
    figures = {"tokens": 4, "by_origin": {"prompt": 2}}
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
        attachments=[Attached("notes\x1b.md", 3, 1, 0, 2)],
    )
    assert history.message(message.id) == message
    assert message == StoredMessage(
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
        attachments=(Attached("notes\x1b.md", 3, 1, 0, 2),),
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
    history.bring_into_view(first.id)
    assert history.thread(chat) == [first, older]
    history.bring_into_view(newer.id)
    assert history.thread(chat) == [first, newer]
    with pytest.raises(InputError, match="no message 99"):
        history.bring_into_view(99)


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


def test_only_an_answer_without_a_word_is_discarded(history: History) -> None:
    chat = history.create_chat().id
    question = history.add_message(chat, None, USER, "question")
    answer = history.add_message(chat, question.id, ASSISTANT, "", finish="")
    history.discard_answer(answer.id, question.id)
    assert history.thread(chat) == history.tree(chat) == [question]
    kept = history.add_message(chat, question.id, ASSISTANT, "word")
    with pytest.raises(InputError, match="has text"):
        history.discard_answer(kept.id, question.id)


def test_what_does_not_exist_is_named(history: History) -> None:
    with pytest.raises(InputError, match="no chat to continue"):
        history.last_chat()
    chat = history.create_chat().id
    with pytest.raises(InputError, match="no chat 99"):
        history.rename(99, "x")
    with pytest.raises(InputError, match="no chat 99"):
        history.add_message(99, None, USER, "x")
    with pytest.raises(InputError, match="no message 99"):
        history.add_message(chat, 99, USER, "x")
    with pytest.raises(InputError, match="no message 99"):
        history.extend_message(99, "x", [], {})
    with pytest.raises(InputError, match="no message 99"):
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
