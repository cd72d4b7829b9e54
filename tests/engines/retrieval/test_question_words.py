"""What the words of a question tell about it."""

from __future__ import annotations

import pytest

from engines.retrieval.question_words import is_about_own


@pytest.mark.parametrize(
    ("question", "own"),
    [
        ("When does my passport expire?", True),
        ("WHERE IS OUR CAR", True),
        ("My car: where is it?", True),
        ("Wann läuft meine Versicherung ab?", True),
        ("Où sont nos clés ?", True),
        ("Когда моя встреча?", True),
        ("Πού είναι το σπίτι μου;", True),
        ("我的护照什么时候到期", True),
        ("私のパスポートはどこ", True),
        ("내 여권은 어디", True),
        ("시내 맛집", False),
        ("How do I copy a directory?", False),
        ("What is the mystery of mycology?", False),
        ("Wer hat das Rad erfunden?", False),
        ("東京の人口は", False),
        ("", False),
    ],
)
def test_what_is_the_askers_own_is_recognised(question: str, own: bool) -> None:
    assert is_about_own(question) is own
