"""The gate: whether a trained student or head may draft.

It is measured on held-out questions, as the file that would be published, against the one that
drafts now: α = Σ min(p, q), and the tokens per call of the whole tree, replayed over the recorded
answers. One must have risen, α to `MIN_ACCEPTANCE` at the least, and the other not have fallen by
more than noise. On texts that the original student knows it may have lost `MAX_LOSS` of α at most,
and of how often both prefer the same token, and no more of α than it gained on new questions, but
for noise: a buffer can be one-sided, or poisoned. α alone does not show what was forgotten, since a
student that learns becomes surer everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from datastores.errors import ModelError
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.model import Llama
from engines.distillation.trainer import evaluate
from engines.distillation.weights import read_student
from engines.drafter_replay import CombinedDrafter, Recorded, ReplayCounts, replay_calls
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.student import Student, StudentDrafter
from engines.drafters.token_recycling import TokenRecycling

MIN_QUESTIONS = 5
MIN_POSITIONS = 200
"""Fewer held-out tokens than this say nothing: one answer would decide."""
MAX_REPLAYED = 64
"""Answers whose tree is replayed: the latest ones."""
MIN_ACCEPTANCE = 0.1
"""α on new questions below which nothing is worth drafting: of random answers, where .02 can rise
to .03 by chance."""
MAX_LOSS = 0.01
"""α or agreement on the original student's texts that a version may lose."""
MAX_NOISE = 0.0025
"""α that comes and goes between two rounds: .0018 on 132 texts in a stream of 500 answers. Refusing
for less cost what had been learned of repeated questions."""
MAX_CALLS_NOISE = 0.01
"""The same for tokens per call, as a share: one answer in ten takes a call more or less."""
DRAFT_ROWS = 7
"""Rows of the tree beside the root: the widest that most CPUs verify at a small extra price."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is left of what the original student knew, on texts that it knew.

    Attributes:
        acceptance: α, at temperature 1. agreement: as it is at temperature 0, the share of
            positions at which both prefer the same token.
    """

    acceptance: float
    agreement: float


@dataclass(frozen=True, slots=True)
class Quality:
    """What a student or head is worth on held-out questions.

    Attributes:
        acceptance: α on them. tokens_per_call: of the whole tree on them.
        base: on texts that the original student knows; None without such texts.
    """

    acceptance: float
    tokens_per_call: float
    base: Retention | None


def measure_student(
    path: Path, student: Student, held_out: Sequence[ReplayRecord], base: Sequence[ReplayRecord]
) -> Quality:
    """Measure the student in the file `path`, loaded as `student`.

    Raises:
        ModelError: its weights are damaged.
    """
    model, replayed = read_student(path).model(), held_out[-MAX_REPLAYED:]
    acceptance, _ = evaluate(model, held_out)
    if not isfinite(acceptance):
        raise ModelError(f"{path} is damaged: its weights are not numbers")
    return Quality(
        acceptance,
        tokens_per_call(student_calls(student, replayed)),
        measure_retention(model, base),
    )


def measure_retention(model: Llama, base: Sequence[ReplayRecord]) -> Retention | None:
    """Measure a student on what the original one knows; None without such texts."""
    return Retention(*evaluate(model, base)) if base else None


def tokens_per_call(counts: Iterable[ReplayCounts]) -> float:
    """Of several answers; 0 without calls."""
    every = list(counts)
    calls = sum(count.calls for count in every)
    return sum(count.tokens for count in every) / calls if calls else 0.0


def student_calls(
    student: Student, records: Sequence[ReplayRecord], others: Sequence[Drafter] = ()
) -> Iterator[ReplayCounts]:
    """`tree_calls` with a student, and `others`."""

    def read(prompt: Sequence[int]) -> None:
        # Read before, so that the drafts do not depend on how fast this machine reads.
        for _ in student.model.prefill(prompt):
            pass

    return tree_calls([StudentDrafter(student), *others], records, read)


def tree_calls(
    models: Sequence[Drafter],
    records: Sequence[ReplayRecord],
    prepare: Callable[[Sequence[int]], object] = lambda prompt: None,
) -> Iterator[ReplayCounts]:
    """The calls that each recorded answer takes with `models` and the n-gram drafters in one tree.

    Stores are left out: they hold the very answers that are replayed.

    Args:
        prepare: called with each prompt.
    """
    tree = CombinedDrafter([PromptLookup(), TokenRecycling(), *models])
    for record in records:
        tokens = record.tokens.tolist()
        prompt, answer = tokens[: record.prompt_length], tokens[record.prompt_length :]
        prepare(prompt)
        recorded = Recorded(tuple(prompt), tuple(answer), list(record.states.decoded()))
        yield replay_calls(tree, recorded, DRAFT_ROWS)


def refusal(held_out: Sequence[ReplayRecord]) -> str:
    """Why `held_out` cannot measure anything; empty if it can."""
    questions = len({record.question for record in held_out})
    positions = sum(len(record.tokens) - record.prompt_length for record in held_out)
    if questions < MIN_QUESTIONS or positions < MIN_POSITIONS:
        return (
            f"{questions} held-out questions with {positions} tokens are too few to measure with:"
            f" {MIN_QUESTIONS} and {MIN_POSITIONS} are needed"
        )
    return ""


def verdict(before: Quality, after: Quality, original_base: Retention | None) -> str:
    """Why the version must not be published; empty if it may."""
    if not after.acceptance >= before.acceptance - MAX_NOISE:
        return f"α on new questions fell from {before.acceptance:.4f} to {after.acceptance:.4f}"
    if not after.tokens_per_call >= before.tokens_per_call * (1.0 - MAX_CALLS_NOISE):
        return (
            f"tokens per step on new questions fell from {before.tokens_per_call:.3f} to"
            f" {after.tokens_per_call:.3f}"
        )
    if after.acceptance <= before.acceptance and after.tokens_per_call <= before.tokens_per_call:
        return "no gain on new questions"
    if after.acceptance < MIN_ACCEPTANCE:
        return f"α on new questions is {after.acceptance:.4f}: too little to draft"
    if original_base is None:
        return ""
    left = after.base or Retention(0.0, 0.0)
    for name, known, now in (
        ("α", original_base.acceptance, left.acceptance),
        ("agreement", original_base.agreement, left.agreement),
    ):
        if not now >= known - MAX_LOSS:
            return (
                f"{name} on what the original draft model knows fell from {known:.4f} to {now:.4f}"
            )
    gained = after.acceptance - before.acceptance
    lost = before.base.acceptance - left.acceptance if before.base else 0.0
    if lost > gained + MAX_NOISE:
        return f"α rose by {gained:.4f} on new questions and fell by {lost:.4f} on known ones"
    return ""
