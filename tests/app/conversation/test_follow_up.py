"""Follow-up questions are searched with what they follow; questions of their own are not."""

from __future__ import annotations

import pytest

from app.conversation.follow_up import MAX_BACK, completed, is_follow_up
from datastores.chats.records import ASSISTANT, USER
from engines.chat_template.prompt_builder import Message


def chat(*questions: str) -> list[Message]:
    return [
        message
        for question in questions
        for message in (Message(USER, question), Message(ASSISTANT, "An answer."))
    ][:-1]


@pytest.mark.parametrize(
    "question",
    [
        "and for children?",
        "what about the back one?",
        "how much does it cost?",
        "who made it",
        "for two people?",
        "und für Kinder?",
        "et pour les enfants ?",
    ],
)
def test_what_leans_on_the_previous_question_is_a_follow_up(question: str) -> None:
    assert is_follow_up(question)


@pytest.mark.parametrize(
    "question",
    [
        "who is Birgitta?",
        "how hard do I pump the back tyre?",
        "when does the ferry to Trelleborg leave and what does it cost in July?",
        "Wann fährt die Fähre?",
    ],
)
def test_what_can_be_understood_alone_is_none(question: str) -> None:
    assert not is_follow_up(question)


def test_a_follow_up_is_searched_with_what_it_follows() -> None:
    fever = "how much paracetamol against fever?"
    assert completed(chat(fever, "and for children?"), "and for children?") == (
        f"{fever}\nand for children?"
    )
    asked = "and at night?"
    assert completed(chat("who?", fever, "and for children?", asked), asked) == (
        f"{fever}\nand for children?\n{asked}"
    )
    assert completed(chat(fever, "who is Birgitta?"), "who is Birgitta?") == "who is Birgitta?"


def test_a_question_without_anything_before_it_stays_as_it_is() -> None:
    assert completed(chat("and it?"), "and it?") == "and it?"
    assert completed([], "and it?") == "and it?"


def test_few_questions_complete_one() -> None:
    asked = "and then?"
    found = completed(chat(*["and more?"] * 9, asked), asked)
    assert found.count("\n") == MAX_BACK
