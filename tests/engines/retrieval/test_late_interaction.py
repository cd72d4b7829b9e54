"""The words of a question that carry its subject, and how evenly a passage matches them."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from datastores.passages.embeddings import Encoding
from engines.retrieval.dense import DenseRetriever
from engines.retrieval.late_interaction import subject_tokens
from engines.retrieval.nearness import Nearness

PIECES = (
    "[CLS]",
    "▁what",
    "▁does",
    "▁the",
    "▁tyre",
    "s",
    "▁of",
    "▁a",
    "▁van",
    "▁need",
    "?",
    "[SEP]",
)


@pytest.mark.parametrize(
    ("pieces", "subject"),
    [
        (PIECES, [4, 5, 8]),
        (tuple(piece.replace("▁", "Ġ") for piece in PIECES), [4, 5, 8]),
        (("[CLS]", "▁who", "?", "[SEP]"), []),
        ((), []),
    ],
)
def test_the_subject_is_in_words_that_other_questions_lack(
    pieces: tuple[str, ...], subject: list[int]
) -> None:
    assert subject_tokens(pieces) == subject


def test_a_passage_with_all_words_but_one_is_uneven() -> None:
    def unevenness(matches: list[float], pieces: tuple[str, ...]) -> float | None:
        states = np.ones((len(matches), 2), np.float32)
        asked = Encoding(states[0], states, pieces)
        return Nearness(cast(DenseRetriever, None), asked, 1).unevenness(np.array(matches))

    even = [0.1, 0.3, 0.9, 0.9, 0.7, 0.7, 0.2, 0.2, 0.7, 0.1, 0.2, 0.1]
    without_van = [*even[:8], 0.1, *even[9:]]
    assert unevenness(even, PIECES) == pytest.approx(0.0)
    assert unevenness(without_van, PIECES) == pytest.approx(np.std([0.7, 0.7, 0.1]))
    assert unevenness(even, ()) is None, "its tokens are not known"
