"""How well a draft model drafts recorded answers, by three figures that are often confused.

α is the papers' Σ min(p, q) (`engines.distillation.acceptance`), at the sampling settings, as the
gate measures it, and at temperatures 0 and 1 without truncation. Live acceptance is what specchat's
rule accepts at the sampling settings. Tokens per step are those of the whole tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.acceptance import PREFERRED, WHOLE, answer_acceptances
from engines.distillation.reader import Reader
from engines.drafter_simulation import SimulationCounts
from engines.sampler import Sampling, make_sampler

SAMPLED = "sampled"
PAPER = {"0": PREFERRED, "1": WHOLE}
"""Temperatures at which α is always reported, besides that at the sampling settings, `SAMPLED`."""


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One answer of the target.

    Attributes:
        topic: name of the workload.
        repeated: whether the stream asked its question before.
        seed: of the sampler's noise.
        record: with probabilities at every position.
    """

    topic: str
    repeated: bool
    seed: int
    record: ReplayRecord

    @property
    def answer(self) -> list[int]:
        """Its tokens, without the prompt's."""
        tokens: list[int] = self.record.tokens[self.record.prompt_length :].tolist()
        return tokens


@dataclass(slots=True)
class Figures:
    """Figures of a draft model on some answers.

    Attributes:
        alphas: the sum of α over all tokens, by sampling settings: `SAMPLED` and those of `PAPER`.
        live: tokens that the draft model draws too, with the shared noise: where specchat's rule
            accepts the first token of a chain.
        tree: steps and tokens of the whole tree, simulated.
    """

    tokens: int = 0
    answers: int = 0
    alphas: dict[str, float] = field(default_factory=dict)
    live: int = 0
    tree: SimulationCounts = field(default_factory=SimulationCounts)

    def add(self, other: Figures) -> None:
        """Add the figures of other answers."""
        self.tokens += other.tokens
        self.answers += other.answers
        self.live += other.live
        for name, total in other.alphas.items():
            self.alphas[name] = self.alphas.get(name, 0.0) + total
        self.tree.steps += other.tree.steps
        self.tree.tokens += other.tree.tokens

    def alpha(self, name: str = SAMPLED) -> float:
        """α at some sampling settings; 0 without answers."""
        return self.alphas.get(name, 0.0) / max(self.tokens, 1)

    def summary(self) -> dict[str, object]:
        """As in `--json`; null without answers."""
        return {
            "answers": self.answers,
            "tokens": self.tokens,
            "alpha": self.alpha(),
            "alpha_at": {name: self.alpha(name) for name in PAPER},
            "live_acceptance": self.live / self.tokens if self.tokens else None,
            "tokens_per_step": self.tree.tokens_per_step or None,
        }


def measure(readers: Sequence[Reader], answer: StreamedAnswer, sampling: Sampling) -> Figures:
    """α and live acceptance of one answer by the reader; without one, nothing is accepted.

    A head has no state for an answer's first token, which prefill gives; that token is left out.
    """
    record, answered = answer.record, answer.answer
    settings = {SAMPLED: sampling, **PAPER}
    if not readers:
        return Figures(len(answered), 1, dict.fromkeys(settings, 0.0))
    logits = readers[0].answer_logits(record)
    skipped = len(answered) - len(logits)
    draw = make_sampler(replace(sampling, seed=answer.seed))
    tokens, start = record.tokens.tolist(), record.prompt_length
    live = sum(
        draw(row, offset, tokens[: start + offset]) == token
        for offset, (row, token) in enumerate(zip(logits, answered[skipped:], strict=True), skipped)
    )
    sums = {
        name: float(answer_acceptances(record, start + skipped, logits, each).sum())
        for name, each in settings.items()
    }
    return Figures(len(logits), 1, sums, live)
