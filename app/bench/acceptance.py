"""How well a draft model drafts recorded answers, by three figures that are often confused.

α is the papers' Σ min(p, q), summed over the target's 64 likeliest tokens and all others together,
at several temperatures; at 0 it is 1 where both prefer the same token. Top-k, top-p and min-p apply
to live acceptance, which is what specchat's rule accepts, and not to α. Tokens per step are those
of the whole tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from datastores.replay_buffer.record import ReplayRecord, top_of
from engines.distillation.forced import ForcedAnswer
from engines.distillation.reader import Reader
from engines.drafter_simulation import SimulationCounts
from engines.sampler import Sampling, make_sampler
from engines.target import Floats

TEMPERATURES = (0.0, 1.0, 1.5)
"""Always reported: for a peaked target, α hardly differs between draft models at lower ones."""

Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One answer of the target, m positions of which have probabilities.

    Attributes:
        topic: name of the workload.
        repeated: whether the stream asked its question before.
        seed: of the sampler's noise.
        record: as the product keeps it: probabilities at temperature 1, here at every position.
        logs: by temperature above 0, log-probabilities [m, k + 1] of the record's top tokens, and
            of all others together.
    """

    topic: str
    repeated: bool
    seed: int
    record: ReplayRecord
    logs: Mapping[float, Logs]

    @property
    def answer(self) -> list[int]:
        """Its tokens, without the prompt's."""
        tokens: list[int] = self.record.tokens[self.record.prompt_length :].tolist()
        return tokens


def tempered(forced: ForcedAnswer, temperature: float) -> Mapping[float, Logs]:
    """`StreamedAnswer.logs` of an answer drawn at `temperature`."""
    found = {}
    for each in {*TEMPERATURES, temperature} - {0.0}:
        _, logprobs, rest = top_of(forced.logits / np.float32(each))
        found[each] = np.concatenate([logprobs, rest[:, None]], axis=1).astype(np.float64)
    return found


@dataclass(slots=True)
class Figures:
    """Figures of a draft model on some answers.

    Attributes:
        positions: tokens with probabilities.
        alphas: by temperature, sum over positions of Σ min(p, q).
        live: tokens that the draft model draws too, with the shared noise: where specchat's rule
            accepts the first token of a chain.
        tree: steps and tokens of the whole tree, simulated.
    """

    tokens: int = 0
    answers: int = 0
    positions: int = 0
    alphas: dict[float, float] = field(default_factory=dict)
    live: int = 0
    tree: SimulationCounts = field(default_factory=SimulationCounts)

    def add(self, other: Figures) -> None:
        """Add the figures of other answers."""
        self.tokens += other.tokens
        self.answers += other.answers
        self.positions += other.positions
        self.live += other.live
        for temperature, total in other.alphas.items():
            self.alphas[temperature] = self.alphas.get(temperature, 0.0) + total
        self.tree.steps += other.tree.steps
        self.tree.tokens += other.tree.tokens

    def alpha(self, temperature: float) -> float:
        """α at one temperature; 0 without answers."""
        return self.alphas.get(temperature, 0.0) / max(self.positions, 1)

    def summary(self) -> dict[str, object]:
        """As in `--json`; null without answers."""
        return {
            "answers": self.answers,
            "tokens": self.tokens,
            "alpha": {f"{each:g}": self.alpha(each) for each in sorted(self.alphas)},
            "live_acceptance": self.live / self.tokens if self.tokens else None,
            "tokens_per_step": self.tree.tokens_per_step or None,
        }


def measure(readers: Sequence[Reader], answer: StreamedAnswer, sampling: Sampling) -> Figures:
    """α and live acceptance of one answer by the reader; without one, nothing is accepted.

    A head has no state for an answer's first token, which prefill gives; that token is left out.
    """
    record, answered = answer.record, answer.answer
    if not readers:
        zeros = dict.fromkeys((0.0, *answer.logs), 0.0)
        return Figures(len(answered), 1, len(record.positions), zeros)
    logits = readers[0].answer_logits(record)
    skipped = len(answered) - len(logits)
    draw = make_sampler(replace(sampling, seed=answer.seed))
    tokens, start = record.tokens.tolist(), record.prompt_length
    live = sum(
        draw(row, offset, tokens[: start + offset]) == token
        for offset, (row, token) in enumerate(zip(logits, answered[skipped:], strict=True), skipped)
    )
    drafted = record.positions >= start + skipped
    known = logits[record.positions[drafted] - start - skipped]
    sums = {each: float(alphas(known, answer, each, drafted).sum()) for each in (0.0, *answer.logs)}
    return Figures(len(logits), 1, len(known), sums, live)


def alphas(
    logits: Floats,
    answer: StreamedAnswer,
    temperature: float,
    chosen: NDArray[np.bool_] | slice = slice(None),
) -> Logs:
    """Σ min(p, q) at each `chosen` position with probabilities, for the reader's `logits` there."""
    top = answer.record.top_tokens[chosen].astype(np.intp)
    if not temperature:
        same: Logs = (logits.argmax(axis=1) == top[:, 0]).astype(np.float64)
        return same
    scaled = logits.astype(np.float64) / temperature
    peak = scaled.max(axis=1, keepdims=True)
    total = np.exp(scaled - peak).sum(axis=1, keepdims=True)
    q = np.exp(np.take_along_axis(scaled, top, 1) - peak) / total
    rest = np.maximum(1.0 - q.sum(axis=1, keepdims=True), 0.0)
    p = np.exp(answer.logs[temperature][chosen])
    result: Logs = np.minimum(p, np.concatenate([q, rest], axis=1)).sum(axis=1)
    return result
