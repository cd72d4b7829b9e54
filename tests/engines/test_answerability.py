"""Whether a passage answers is learned from states, tried on other texts, and kept on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import ArrayLike, NDArray

from datastores.errors import ModelError
from engines import answerability
from engines.answerability import (
    MAX_LOST,
    MIN_AUC,
    RIDGE,
    AnswerabilityClassifier,
    Bools,
    area_under_curve,
    candidate_layers,
    fit,
    learn,
    read_classifier,
    write_classifier,
)
from engines.target import Floats

WIDTH = 12
TEXTS, ASKED = 120, 4
"""Number of texts, and of questions about each."""
LAYERS = (2, 5, 6)
DIRECTION = np.cos(np.arange(WIDTH, dtype=np.float32))


def draw_states(count: int, seed: int, minimum: float = 0.0) -> tuple[Floats, Bools]:
    """States, and whether they are at least `minimum` along `DIRECTION`, with some noise."""
    random = np.random.default_rng(seed)
    states = random.standard_normal((count, WIDTH)).astype(np.float32)
    return states, states @ DIRECTION + 0.5 * random.standard_normal(count) >= minimum


@pytest.fixture
def texts() -> NDArray[np.int64]:
    """The text of each question; the numbers are multiples of the number of folds."""
    return 4 * np.repeat(np.arange(TEXTS), ASKED)


def test_a_planted_direction_is_found() -> None:
    weights, bias = fit(*draw_states(600, seed=1, minimum=1))
    lengths = np.linalg.norm(weights) * np.linalg.norm(DIRECTION)
    assert weights @ DIRECTION > 0.98 * lengths
    states, answered = draw_states(600, seed=2, minimum=1)
    assert np.mean((states @ weights + bias > 0) == answered) > 0.9


def by_gradient_descent(states: Floats, answered: Bools) -> NDArray[np.float64]:
    """The log-odds of the logistic regression over standardised states, with the same penalty."""
    inputs = states.astype(np.float64)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    weights, bias, penalty = np.zeros(inputs.shape[1]), 0.0, RIDGE * inputs.shape[1]
    step = 1 / (penalty + (np.linalg.norm(inputs, 2) ** 2 + len(inputs)) / 4)
    for _ in range(1000):
        error = 1 / (1 + np.exp(-inputs @ weights - bias)) - answered
        weights = weights - step * (inputs.T @ error + penalty * weights)
        bias -= step * error.sum()
    return np.asarray(inputs @ weights + bias)


@pytest.mark.parametrize("minimum", [0.0, 3.0])
def test_it_is_the_logistic_regression_of_gradient_descent(minimum: float) -> None:
    states, answered = draw_states(200, seed=3, minimum=minimum)
    scales = np.geomspace(0.1, 1000, WIDTH, dtype=np.float32)
    for scaled in (states, states * scales + 10 * scales):
        weights, bias = fit(scaled, answered)
        odds = scaled @ weights + bias
        expected = by_gradient_descent(states, answered)
        np.testing.assert_allclose(odds, expected, rtol=2e-3, atol=1e-3)


def test_the_layer_that_tells_is_taken(texts: NDArray[np.int64]) -> None:
    told, answered = draw_states(len(texts), seed=4)
    noise = [draw_states(len(texts), seed)[0] for seed in (5, 6)]
    states = np.stack([noise[0], told, noise[1]], axis=1).astype(np.float16)
    found = learn(LAYERS, states, answered, texts)
    assert found.layer == LAYERS[1]
    assert found.auc > MIN_AUC
    assert found.reliable
    others, truth = draw_states(1000, seed=7)
    odds = found.log_odds(others)
    assert odds.dtype == np.float32
    assert area_under_curve(odds[truth], odds[~truth]) == pytest.approx(found.auc, abs=0.02)
    assert np.mean(odds[truth] < found.minimum) == pytest.approx(MAX_LOST, abs=0.04)
    assert np.mean(odds[~truth] < found.minimum) > 0.5


def test_states_that_tell_nothing_are_not_reliable(texts: NDArray[np.int64]) -> None:
    states, answered = draw_states(len(texts), seed=8)
    found = learn((3,), np.roll(states, 1, axis=0)[:, None], answered, texts)
    assert not found.reliable


def test_knowing_a_text_does_not_count(texts: NDArray[np.int64]) -> None:
    """The states say which text is asked about, and all questions about it have one answer."""
    random = np.random.default_rng(9)
    own = random.standard_normal((TEXTS, 64)).astype(np.float32)
    answers = random.random(TEXTS) < 0.5
    states, answered = own[texts // 4], answers[texts // 4]
    weights, bias = fit(states, answered)
    odds = states @ weights + np.float32(bias)
    assert area_under_curve(odds[answered], odds[~answered]) > 0.95
    order = random.permutation(len(texts))
    found = learn((0,), states[order, None], answered[order], texts[order])
    assert 0.35 < found.auc < 0.65


@given(
    odds=st.lists(st.integers(-9, 9), min_size=5, max_size=90),
    others=st.lists(st.integers(-9, 9), min_size=5, max_size=9),
)
def test_the_minimum_loses_few_of_the_answered(odds: list[int], others: list[int]) -> None:
    states = np.array([[*odds, *others]], np.float32).T
    answered = np.arange(len(states)) < len(odds)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(answerability, "fit", lambda *_: (np.ones(1, np.float32), 0.0))
        found = learn((0,), states[:, None], answered, np.arange(len(states)))
    lost = sum(one < found.minimum for one in odds)
    assert lost <= MAX_LOST * len(odds)
    kept = sum(one > found.minimum for one in odds)
    # The minimum is the value below the quantile, which lies among `len(odds) - 1` steps.
    assert kept <= len(odds) - MAX_LOST * (len(odds) - 1)


@given(
    positives=st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    negatives=st.lists(st.integers(-5, 5), min_size=1, max_size=12),
)
def test_the_area_under_the_curve_counts_ties_as_half(
    positives: list[int], negatives: list[int]
) -> None:
    pairs = [(one > other) + (one == other) / 2 for one in positives for other in negatives]
    area = area_under_curve(np.array(positives, np.float32), np.array(negatives, np.float32))
    assert area == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("count", range(2, 81))
def test_the_last_layer_is_no_candidate(count: int) -> None:
    layers = candidate_layers(count)
    assert layers
    assert list(layers) == sorted(set(layers))
    assert layers[0] >= 0
    assert layers[-1] < count - 1


def test_a_single_layer_leaves_no_candidates() -> None:
    with pytest.raises(ModelError, match="one layer"):
        candidate_layers(1)


CLASSIFIER = AnswerabilityClassifier(3, np.arange(4, dtype=np.float32), -0.25, 0.1, 0.875)


def assert_equal(one: AnswerabilityClassifier, two: AnswerabilityClassifier) -> None:
    np.testing.assert_array_equal(one.weights, two.weights, strict=True)
    assert (one.layer, one.bias) == (two.layer, two.bias)
    assert (one.minimum, one.auc) == (two.minimum, two.auc)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_classifier(path, CLASSIFIER)
    assert_equal(read_classifier(path), CLASSIFIER)


def packed(**arrays: ArrayLike) -> bytes:
    """A file of these arrays."""
    content = BytesIO()
    np.savez(content, allow_pickle=True, **arrays)
    return content.getvalue()


def changed(**arrays: ArrayLike) -> bytes:
    """A file with other arrays in place of the written ones."""
    return packed(**{"weights": CLASSIFIER.weights, "layer": 3, "numbers": np.zeros(3), **arrays})


WRITTEN = changed(numbers=[CLASSIFIER.bias, CLASSIFIER.minimum, CLASSIFIER.auc])
"""The file of `CLASSIFIER`."""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x05\x06",
        b"no archive",
        changed(weights=np.zeros((2, 2), np.float32)),
        changed(weights=np.zeros(2)),
        changed(weights=np.array([0, np.nan], np.float32)),
        packed(layer=3, numbers=np.zeros(3)),
        changed(layer=[1, 2]),
        changed(layer="x"),
        changed(numbers=np.zeros(2)),
        changed(numbers=np.array([0, np.nan, 1])),
        changed(numbers=np.array([np.inf, 0, 1])),
        changed(numbers=np.array([None] * 3, object)),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(str(path))):
        read_classifier(path)


class Pickled:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    path = tmp_path / "a.npz"
    path.write_bytes(changed(weights=np.array([Pickled(folder)], object)))
    with pytest.raises(ModelError, match=re.escape(str(path))):
        read_classifier(path)
    assert not folder.exists()


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=re.escape(str(tmp_path / "a.npz"))):
        read_classifier(tmp_path / "a.npz")


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(WRITTEN)
    assert_equal(read_classifier(tmp_path / "a.npz"), CLASSIFIER)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for size in range(0, len(WRITTEN), 5):
        path.write_bytes(WRITTEN[:size])
        with pytest.raises(ModelError, match=re.escape(str(path))):
            read_classifier(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(place=st.integers(0, 1000), patch=st.binary(min_size=1, max_size=4))
def test_a_changed_file_is_read_right_or_refused(tmp_path: Path, place: int, patch: bytes) -> None:
    path, content = tmp_path / "a.npz", bytearray(WRITTEN)
    place %= len(content) - len(patch)
    content[place : place + len(patch)] = patch
    path.write_bytes(content)
    with suppress(ModelError):
        assert_equal(read_classifier(path), CLASSIFIER)
