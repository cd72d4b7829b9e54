"""Whether a passage states the answer to a question, by a model's state after reading both.

What a model says when it is asked tells little: of 1,400 questions about notes, half of which the
note answers and half of which it only seems to, Qwen2.5-Coder 1.5B's "yes" finds the former with an
area under the curve of .55, .71 after twelve examples. Its states know better (A. Slobodkin et al.,
"The Curious Case of Hallucinatory (Un)answerability", EMNLP 2023, section 5): a logistic regression
over those after its 20th layer of 28, learned from 90 other notes, .85, and .89 if it is not asked
for "yes" but to answer, or to say that it is not stated; from 600 notes .92. Its last layer has
.04 less, a network instead of the regression no more, and three layers together .006 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ModelError
from datastores.pauses import pause_here
from datastores.storage.files import write_bytes_atomic
from engines.target import Floats

RIDGE = 1 / 16
"""Weight of the penalty for each dimension of a state: half the sum of squared weights, of features
of unit variance, counts this times the width, against the summed log-loss."""
FOLDS = 4
"""Parts of the texts, on each of which is tried what was learned from the others."""
MAX_LOST = 0.07
"""Share of answered questions that the minimum may lose. With .1, .07 and .05, Qwen2.5-Coder 1.5B
loses 8, 5 and 3 of 155 development questions whose passage leads, and rejects all passages for .83,
.78 and .73 of 209 that nothing answers."""
MIN_AUC = 0.8
"""Minimum area under the curve of a classifier that is used."""
DEPTHS = 1 / 2, 9 / 16, 5 / 8, 11 / 16
"""Shares of a model's layers after which states may tell most."""
STEPS, MIN_STEP = 25, 1e-6
"""Most of Newton's steps, and the length of the last one."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class AnswerabilityClassifier:
    """Log-odds that the answer is stated, linear in the state after one layer.

    Attributes:
        layer: its number, from 0.
        weights: float32 [width].
        minimum: fewest log-odds of a passage that states the answer.
        auc: area under the curve on questions about texts that it had not learned from.
    """

    layer: int
    weights: Floats
    bias: float
    minimum: float
    auc: float

    def log_odds(self, states: Floats) -> Floats:
        """Of states [n, width], float32 [n]."""
        odds: Floats = states @ self.weights + np.float32(self.bias)
        return odds

    @property
    def reliable(self) -> bool:
        """Whether it tells answered questions from others well enough to be used."""
        return self.auc >= MIN_AUC


def candidate_layers(count: int) -> tuple[int, ...]:
    """The layers of a model with `count` of them to choose from, ascending and without the last.

    Raises:
        ModelError: its only layer is the last.
    """
    if count < 2:
        raise ModelError("a model of one layer has none to check passages by")
    return tuple(sorted({min(int(count * depth), count - 2) for depth in DEPTHS}))


def write_classifier(path: Path, classifier: AnswerabilityClassifier) -> None:
    """Write a file for `read_classifier`.

    Raises:
        OSError: it cannot be written.
    """
    content = BytesIO()
    np.savez(
        content,
        weights=classifier.weights,
        layer=classifier.layer,
        numbers=np.array([classifier.bias, classifier.minimum, classifier.auc]),
    )
    write_bytes_atomic(path, [content.getbuffer()])


def read_classifier(path: Path) -> AnswerabilityClassifier:
    """Read what `write_classifier` wrote.

    Raises:
        ModelError: it is missing or damaged.
    """
    try:
        # NumPy would leave a damaged file open.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as content:
            weights, layer = content["weights"], int(content["layer"])
            bias, minimum, auc = numbers = [float(one) for one in content["numbers"]]
    except Exception as error:  # NumPy and zipfile raise all kinds over damaged files
        raise ModelError(f"{path} cannot be read ({error}): delete it") from error
    is_vector = weights.ndim == 1 and weights.dtype == np.float32
    if not is_vector or not np.isfinite([*weights, *numbers]).all():
        raise ModelError(f"{path} is damaged: delete it")
    return AnswerabilityClassifier(layer, weights, bias, minimum, auc)


def learn(
    layers: Sequence[int],
    states: NDArray[np.float16] | Floats,
    answered: Bools,
    texts: NDArray[np.int64],
) -> AnswerabilityClassifier:
    """The best classifier over one of `layers`.

    Args:
        states: [questions, layers, width].
        answered: [questions], whether the text answers the question.
        texts: [questions], which text each is about; all questions about a text are in one fold.
    """
    found = [
        _validated(layer, states[:, place].astype(np.float32), answered, texts)
        for place, layer in enumerate(layers)
    ]
    return max(found, key=lambda one: one.auc)


def _validated(
    layer: int, states: Floats, answered: Bools, texts: NDArray[np.int64]
) -> AnswerabilityClassifier:
    """Learned from all, with a minimum and an area under the curve from the folds."""
    folds = np.unique(texts, return_inverse=True)[1] % FOLDS
    odds = np.empty(len(states), np.float32)
    for fold in range(FOLDS):
        held_out = folds == fold
        weights, bias = fit(states[~held_out], answered[~held_out])
        odds[held_out] = states[held_out] @ weights + np.float32(bias)
    minimum = float(np.quantile(odds[answered], MAX_LOST, method="lower"))
    weights, bias = fit(states, answered)
    return AnswerabilityClassifier(
        layer, weights, bias, minimum, area_under_curve(odds[answered], odds[~answered])
    )


def fit(states: Floats, answered: Bools) -> tuple[Floats, float]:
    """Weights [width] and bias of the logistic regression with a ridge penalty, by Newton's method.

    Args:
        states: float32 [questions, width].
        answered: [questions].
    """
    mean, spread = states.mean(axis=0), np.sqrt(states.var(axis=0) + 1e-6)
    inputs = np.column_stack([(states - mean) / spread, np.ones(len(states), np.float32)])
    penalty = np.full(inputs.shape[1], RIDGE * states.shape[1], np.float32)
    penalty[-1] = 1e-3
    solution = np.zeros(inputs.shape[1], np.float32)
    for _ in range(STEPS):
        pause_here()
        chance = 1 / (1 + np.exp(-np.clip(inputs @ solution, -30, 30)))
        gradient = inputs.T @ (chance - answered) + penalty * solution
        weighted = inputs * np.sqrt(chance * (1 - chance))[:, None]
        step = np.linalg.solve(weighted.T @ weighted + np.diag(penalty), gradient)
        solution -= step
        if np.abs(step).max() < MIN_STEP:
            break
    weights = (solution[:-1] / spread).astype(np.float32)
    return weights, float(solution[-1] - mean @ weights)


def area_under_curve(positives: Floats, negatives: Floats) -> float:
    """The chance that one of `positives` is above one of `negatives`; half for a tie."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, "left")
    upto = np.searchsorted(ordered, positives, "right")
    return float(np.mean(below + upto)) / (2 * len(ordered))
