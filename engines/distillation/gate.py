"""The gate: whether a trained draft model or head may draft.

The file that would be published is compared with the version that drafts now, on held-out
questions: by α at the person's sampling settings (`acceptance`), and by the tokens per step of the
whole tree, simulated over the recorded answers. One must have risen, α to at least
`MIN_ACCEPTANCE`, and the other must not have fallen by more than one standard error of the
difference over the same answers. Where the costs of this machine are known, a head must also save
time (`payoff`).

On known texts, a version may lose at most `MAX_LOSS` of the original draft model's α, and of the
share of positions where both prefer the same token. Compared with the current version it may lose
no more α than that, and no more than it gained on new questions, within noise: a buffer may be
one-sided or poisoned. α alone hides forgetting, since a draft model becomes surer everywhere while
it learns. Known texts are those that the original draft model drafts well, or else older held-out
questions. In the first round of a draft model without known texts there are neither: consistent
false answers can then make drafts worse, but never change an answer, until `specchat draft reset`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ModelError
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.model import Llama
from engines.distillation.payoff import Payoff
from engines.distillation.reader import evaluate
from engines.distillation.weights import read_llama_file
from engines.drafter_simulation import CombinedDrafter, Recorded, SimulationCounts, simulate_steps
from engines.drafters.draft_model import DraftModel, DraftModelDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.sampler import Sampling

MIN_QUESTIONS = 5
MIN_POSITIONS = 200
"""Fewest held-out tokens that are representative."""
MAX_SIMULATED = 64
"""Latest answers whose tree is simulated."""
MIN_ACCEPTANCE = 0.1
"""α on new questions below which drafting is not worthwhile: for random answers it can rise from
.02 to .03 by chance."""
MAX_LOSS = 0.01
"""α or agreement on known texts that a version may lose."""
MAX_NOISE = 0.0025
"""Fluctuation of α on known texts between two rounds: .0018 on 132 in a stream of 500 answers.
With a smaller tolerance, the gate rejected gains on repeated questions."""
DRAFT_ROWS = 7
"""Rows of the tree besides the root: the widest that most CPUs verify at a small extra cost."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Quality on known texts.

    Attributes:
        acceptance: α.
        agreement: share of positions at which both prefer the same token.
    """

    acceptance: float
    agreement: float


@dataclass(frozen=True, slots=True)
class AnswerMean:
    """A mean over the parts of some answers, such as their positions or steps.

    Attributes:
        totals: for each answer, the sum over its parts.
        counts: for each answer, the number of its parts.
    """

    totals: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def value(self) -> float:
        """The mean; 0 without parts."""
        parts = sum(self.counts)
        return sum(self.totals) / parts if parts else 0.0

    def influence(self) -> NDArray[np.float64]:
        """How far each answer moves the mean, float64 [answers]; the sum is 0."""
        totals, counts = np.array(self.totals), np.array(self.counts)
        influence: NDArray[np.float64] = (totals - self.value * counts) / max(counts.sum(), 1.0)
        return influence

    def error_of_change(self, after: AnswerMean) -> float:
        """Standard error of the difference from the mean `after` of the same answers.

        By linearisation of the ratio of sums (Cochran 1977, "Sampling Techniques", 6.4).
        """
        moved = after.influence() - self.influence()
        return float(np.sqrt((moved**2).sum() * len(moved) / max(len(moved) - 1, 1)))


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a draft model or head on held-out questions.

    Attributes:
        acceptance: α.
        tokens_per_step: of the whole tree.
        base: quality on known texts; None without such texts.
        payoff: None where it was not estimated.
    """

    acceptance: AnswerMean
    tokens_per_step: AnswerMean
    base: Retention | None
    payoff: Payoff | None = None


def measure_draft_model(
    path: Path,
    draft_model: DraftModel,
    held_out: Sequence[ReplayRecord],
    base: Sequence[ReplayRecord],
    sampling: Sampling,
) -> Quality:
    """Measure the draft model in the file `path`, loaded as `draft_model`.

    Raises:
        ModelError: the weights are damaged.
    """
    model, simulated = read_llama_file(path).model(), held_out[-MAX_SIMULATED:]
    found = [evaluate(model, [record], sampling)[0] for record in held_out]
    lengths = tuple(float(len(one.tokens) - one.prompt_length) for one in held_out)
    acceptance = AnswerMean(tuple(np.multiply(found, lengths).tolist()), lengths)
    if not isfinite(acceptance.value):
        raise ModelError(f"{path} is damaged: its weights are not numbers")
    return Quality(
        acceptance,
        tokens_per_step(steps_with_draft_model(draft_model, simulated)),
        measure_retention(model, base, sampling),
    )


def measure_retention(
    model: Llama, base: Sequence[ReplayRecord], sampling: Sampling
) -> Retention | None:
    """Measure a draft model on known texts; None without such texts."""
    return Retention(*evaluate(model, base, sampling)) if base else None


def tokens_per_step(counts: Iterable[SimulationCounts]) -> AnswerMean:
    """The mean over several answers."""
    every = list(counts)
    return AnswerMean(tuple(one.tokens for one in every), tuple(one.steps for one in every))


def steps_with_draft_model(
    draft_model: DraftModel, records: Sequence[ReplayRecord], others: Sequence[Drafter] = ()
) -> Iterator[SimulationCounts]:
    """The steps of `tree_steps` with a draft model and `others`."""

    def read(prompt: Sequence[int]) -> None:
        # Read in advance, so that the drafts do not depend on the speed of this machine.
        for _ in draft_model.model.prefill(prompt):
            pass

    return tree_steps([DraftModelDrafter(draft_model), *others], records, read)


def tree_steps(
    models: Sequence[Drafter],
    records: Sequence[ReplayRecord],
    prepare: Callable[[Sequence[int]], object] = lambda prompt: None,
) -> Iterator[SimulationCounts]:
    """The steps that each recorded answer takes with `models` and the n-gram drafters in one tree.

    Stores are left out, since they contain the simulated answers.

    Args:
        prepare: called with each prompt.
    """
    tree = CombinedDrafter([PromptLookup(), TokenRecycling(), *models])
    for record in records:
        tokens = record.tokens.tolist()
        prompt, answer = tokens[: record.prompt_length], tokens[record.prompt_length :]
        prepare(prompt)
        recorded = Recorded(tuple(prompt), tuple(answer), list(record.states.decoded()))
        yield simulate_steps(tree, recorded, DRAFT_ROWS)


def refusal(held_out: Sequence[ReplayRecord]) -> str:
    """Why `held_out` is too small to measure with; empty if it suffices."""
    questions = len({record.question for record in held_out})
    positions = sum(len(record.tokens) - record.prompt_length for record in held_out)
    if questions < MIN_QUESTIONS or positions < MIN_POSITIONS:
        return (
            f"{questions} held-out questions with {positions} tokens are too few to measure with:"
            f" {MIN_QUESTIONS} and {MIN_POSITIONS} are needed"
        )
    return ""


def _costs(quality: Quality, found: Payoff) -> str:
    return (
        f"{found.draft_s * 1e3:.2f} ms per drafted token, {found.plain_s * 1e3:.1f} ms per token"
        f" without drafts, and {quality.acceptance.value:.0%} of new questions' tokens correct"
    )


def verdict(before: Quality, after: Quality, original_base: Retention | None) -> str:
    """Why the version must not be published; empty if it may."""
    for name, was, now in (
        ("α", before.acceptance, after.acceptance),
        ("tokens per step", before.tokens_per_step, after.tokens_per_step),
    ):
        if not now.value >= was.value - was.error_of_change(now):
            return f"{name} on new questions fell from {was.value:.4f} to {now.value:.4f}"
    gained = after.acceptance.value - before.acceptance.value
    if gained <= 0.0 and after.tokens_per_step.value <= before.tokens_per_step.value:
        return "no gain on new questions"
    if after.acceptance.value < MIN_ACCEPTANCE:
        return f"α on new questions is {after.acceptance.value:.4f}: too little to draft"
    if after.payoff is not None and after.payoff.gain <= 0.0:
        return f"it would cost more time than it saves: {_costs(after, after.payoff)}"
    if original_base is None:
        return ""
    left = after.base or Retention(0.0, 0.0)
    for name, known, kept in (
        ("α", original_base.acceptance, left.acceptance),
        ("agreement", original_base.agreement, left.agreement),
    ):
        if not kept >= known - MAX_LOSS:
            return f"{name} on known texts fell from {known:.4f} to {kept:.4f}"
    lost = before.base.acceptance - left.acceptance if before.base else 0.0
    if lost > min(gained, MAX_LOSS) + MAX_NOISE:
        return f"α rose by {gained:.4f} on new questions and fell by {lost:.4f} on known ones"
    return ""
