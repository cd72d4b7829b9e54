"""The context that a chat takes is known before anything is sent."""

from __future__ import annotations

from pathlib import Path

from app.conversation.assistant import Assistant
from app.conversation.context_use import ContextUse, question_tokens, thread_tokens
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from tests.app.scripted import scripted_engine


def test_what_is_counted_is_what_is_sent(tmp_path: Path, history: History) -> None:
    engine = scripted_engine(tmp_path)
    assistant = Assistant(engine, history)
    chat = history.create_chat(system="Be brief.").id
    for question in ("one", "two and a half"):
        thread = history.thread(chat)
        counted = thread_tokens(engine.vocabulary, "Be brief.", thread)
        counted += question_tokens(engine, question)
        list(assistant.answer(chat, history.chat(chat).active, question))
        sent = history.thread(chat)[-1].statistics["prompt_tokens"]
        assert isinstance(sent, int)
        assert abs(counted - sent) <= 6


def test_an_answer_of_another_model_is_counted_by_its_text(
    tmp_path: Path, history: History
) -> None:
    engine = scripted_engine(tmp_path)
    chat = history.create_chat().id
    history.add_message(
        chat, None, USER, "x" * 50, tokenizer="another", statistics={"prompt_tokens": 7}
    )
    assert 50 <= thread_tokens(engine.vocabulary, "", history.thread(chat)) <= 60
    assert thread_tokens(engine.vocabulary, "", ()) == question_tokens(engine, " ") == 0


def test_a_full_context_leaves_no_room_for_an_answer() -> None:
    assert [ContextUse(tokens, 100).overflows for tokens in (99, 100)] == [False, True]


def test_reasoning_that_is_not_sent_again_is_not_counted(tmp_path: Path, history: History) -> None:
    vocabulary = scripted_engine(tmp_path).vocabulary
    chat = history.create_chat().id
    figures = {"prompt_tokens": 7, "tokens": 500}
    text = f"<think>{'hm ' * 200}</think>40"
    history.add_message(
        chat, None, ASSISTANT, text, tokenizer=vocabulary.fingerprint, statistics=figures
    )
    assert thread_tokens(vocabulary, "", history.thread(chat)) == 7 + 2
