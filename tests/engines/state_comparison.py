"""Texts, and comparisons of a model's states at their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.target import Floats, LayerStates

TOLERANCE = 1e-2
"""Largest error by rounding, as a share of the mean distance of a text's state from the mean."""
FIRST_TOKEN, LAST_TOKEN = 3, 60
"""Tokens that every model has."""


def texts(count: int, length: int) -> list[list[int]]:
    """Random texts, always the same."""
    drawn = np.random.default_rng(5).integers(FIRST_TOKEN, LAST_TOKEN, (count, length))
    return [[int(token) for token in text] for text in drawn]


def read_apart(
    states: LayerStates, beginning: Sequence[int], ends: Sequence[Sequence[int]]
) -> Floats:
    """The states of each text, read as a whole and by itself."""
    return np.concatenate([states.read((), [[*beginning, *end]]) for end in ends])


def assert_same(read: Floats, expected: Floats) -> None:
    """Check that states of several texts, [texts, layers, width], differ by rounding only."""
    assert read.shape == expected.shape
    assert len(expected) > 1
    distance = np.linalg.norm(expected - expected.mean(axis=0), axis=2).mean(axis=0)
    error = np.linalg.norm(read - expected, axis=2)
    assert (error <= TOLERANCE * distance).all(), error / distance
