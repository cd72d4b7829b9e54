"""Replaying recorded answers through drafters, without a model.

With drafters that see only tokens, what lossless decoding accepts is decided by the answer alone,
so a recorded answer gives true figures. Each drafter is asked once at every position of an answer;
the first b rows of what it says are its draft at budget b, since drafters put the most probable
rows first. A walk over the answer for each budget then counts calls, as `decode` would make them:
the first token comes out of prefill, and every call emits what it accepts and one token more.

Owns the walk. Knows no stores and no recordings' format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter

import numpy as np

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.selection import by_probability, merge, prune
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, Step, Timings

MAX_SUCCESSORS = 8
"""Most recent successors of a token, which stand in for the target's likeliest ones."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded answer: the tokens before it, and its own, the one that ends it included."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(slots=True)
class ReplayCounts:
    """What one drafter reached at one budget.

    Attributes:
        calls: of the target. tokens: emitted by them. drafted: rows verified beside the roots.
        rates: of each answer, accepted ÷ drafted chain lengths.
    """

    calls: int = 0
    tokens: int = 0
    drafted: int = 0
    rates: list[float] = field(default_factory=list)

    @property
    def tokens_per_call(self) -> float:
        """Accepted length: tokens that a call yields; 0 without calls."""
        return self.tokens / self.calls if self.calls else 0.0

    @property
    def drafted_per_call(self) -> float:
        """Rows verified by a call, the root not counted; 0 without calls."""
        return self.drafted / self.calls if self.calls else 0.0

    @property
    def mean_acceptance_rate(self) -> float:
        """The papers' MAR: the answers' rates, averaged; 0 where nothing was drafted."""
        return sum(self.rates) / len(self.rates) if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """What was proposed at one position: rows that the answer took, and the depth of every row."""

    taken: tuple[int, ...]
    depths: tuple[int, ...]


def replay(
    drafter: Drafter, recordings: Sequence[Recorded], budgets: Sequence[int]
) -> tuple[dict[int, ReplayCounts], list[float]]:
    """Tallies by budget, and the seconds of every proposal."""
    tallies = {budget: ReplayCounts() for budget in budgets}
    seconds: list[float] = []
    for recorded in recordings:
        drafts = list(_drafts(drafter, recorded, max(budgets), seconds))
        for budget, tally in tallies.items():
            _walk(drafts, budget, tally)
    return tallies, seconds


def _drafts(
    drafter: Drafter, recorded: Recorded, limit: int, seconds: list[float]
) -> Iterator[Draft]:
    """The drafter's word before each token of the answer but the first."""
    answer = recorded.answer
    context = Context([*recorded.prompt, *answer[:1]], np.zeros(0, dtype=np.float32), 0.0)
    followers = SuccessorTable(recorded.prompt)
    drafter.begin(context)
    drafter.observe(_step(context, followers, prefill=True))
    for position in range(1, len(answer)):
        started = perf_counter()
        tree = drafter.propose(context, limit)
        seconds.append(perf_counter() - started)
        yield Draft(_taken(tree, answer[position:]), tuple(tree.depths()))
        context.tokens.append(answer[position])
        drafter.observe(_step(context, followers))


def _taken(tree: DraftTree, tokens: Sequence[int]) -> tuple[int, ...]:
    """Rows that `tokens` walk along."""
    children = tree.children()
    taken, row = [], 0
    for token in tokens:
        row = children[row].get(token, 0)
        if not row:
            break
        taken.append(row)
    return tuple(taken)


def _walk(drafts: Sequence[Draft], budget: int, tally: ReplayCounts) -> None:
    position = chain = accepted = 0
    while position < len(drafts):
        draft = drafts[position]
        # Rows stand behind their parents, so the first that is missing ends the walk.
        held = sum(row <= budget for row in draft.taken)
        emitted = min(held + 1, len(drafts) - position)
        tally.calls += 1
        tally.tokens += emitted
        tally.drafted += min(budget, len(draft.depths) - 1)
        chain += max(draft.depths[: budget + 1])
        accepted += held
        position += emitted
    if chain:
        tally.rates.append(accepted / chain)


class SuccessorTable:
    """What has followed each token in this chat, latest first: a model's word without the model.

    Token recycling learns from the target's likeliest successors, which a recording does not hold.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._after: dict[int, list[int]] = {}
        for before, token in pairwise(tokens):
            self.note(before, token)

    def note(self, before: int, token: int) -> list[int]:
        """`token` followed `before`; returns all that did, latest first."""
        after = self._after.setdefault(before, [])
        if token in after:
            after.remove(token)
        after.insert(0, token)
        del after[MAX_SUCCESSORS:]
        return after


def _step(context: Context, followers: SuccessorTable, *, prefill: bool = False) -> Step:
    """The step that emitted the last token of `context`, as observers see it."""
    before, token = context.tokens[-2:]
    likeliest = list(followers.note(before, token))
    return Step(
        position=len(context.tokens) - 1,
        tokens=(token,),
        sources=(0,),
        tree=root_only(before),
        path=(0,),
        proposals=(),
        hidden=np.zeros((1, 0), dtype=np.float32),
        top_tokens=[likeliest],
        top_logits=-np.arange(len(likeliest), dtype=np.float32)[None],
        timings=Timings(0.0, 0.0, 0.0),
        prefill=prefill,
        finish="",
    )


class CombinedDrafter:
    """Several drafters as one: merged and calibrated as the budget does it."""

    name = "all"
    top_tokens_needed = 0

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self._calibration = AcceptanceModel()

    def begin(self, context: Context) -> None:
        """A new answer starts; what was calibrated stays."""
        self._calibration.drop_pending()
        for drafter in self._drafters:
            drafter.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The rows that calibration finds most probable."""
        proposals = [
            Proposal(drafter.name, drafter.propose(context, limit), 0.0)
            for drafter in self._drafters
        ]
        merged = merge(context.root, proposals, context.temperature)
        paths = self._calibration.estimate(merged)
        self._calibration.add_pending(merged, paths)
        return prune(merged.tree, by_probability(merged.tree, paths, chains_only=False)[:limit])

    def observe(self, step: Step) -> None:
        """Learn from what came."""
        if not step.prefill:
            self._calibration.learn(step.tokens)
        for drafter in self._drafters:
            drafter.observe(step)
