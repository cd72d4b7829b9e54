"""Follow-up questions are searched with what they follow; questions of their own are not."""

from __future__ import annotations

import pytest

from app.conversation.follow_up import MAX_BACK, completed, is_follow_up


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


FEVER = "how much paracetamol against fever?"


@pytest.mark.parametrize(
    ("earlier", "asked", "searched"),
    [
        ([FEVER], "and for children?", [FEVER, "and for children?"]),
        (["who?", FEVER, "and now?"], "and at night?", [FEVER, "and now?", "and at night?"]),
        ([FEVER], "who is Birgitta?", ["who is Birgitta?"]),
        ([], "and it?", ["and it?"]),
        (["and more?"] * 9, "and then?", [*["and more?"] * MAX_BACK, "and then?"]),
    ],
)
def test_a_follow_up_is_searched_with_what_it_follows(
    earlier: list[str], asked: str, searched: list[str]
) -> None:
    assert completed(earlier, asked).split("\n") == searched
