"""Simulation: drafters run along recorded answers, without the target.

If drafters see only tokens, the answer alone decides what lossless decoding accepts, so a recorded
answer gives exact counts. Each drafter is consulted once at every position of an answer; the first
b rows of its tree are its draft at budget b, since drafters put the most probable rows first. A
walk over the answer for each budget then counts steps as `decode` would make them: the first token
comes out of prefill, and every step emits the accepted tokens and one more.
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
from engines.target import Floats

MAX_SUCCESSORS = 8
"""Successors kept of each token."""

UNKNOWN_STATE: Floats = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded answer.

    Attributes:
        answer: includes the stop token.
        states: hidden states, float32 [width], of the answer's first tokens, if they were kept.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    states: Sequence[Floats] = ()

    def state(self, index: int) -> Floats:
        """The state that produced token `index` of the answer, [width]; [0] if it is unknown."""
        return self.states[index] if index < len(self.states) else UNKNOWN_STATE


@dataclass(slots=True)
class SimulationCounts:
    """The result of one drafter at one budget.

    Attributes:
        steps: forward passes of the target.
        tokens: tokens emitted by them.
        drafted: rows verified, roots excluded.
        rates: acceptance rate of each answer: accepted ÷ drafted tokens along the longest chains.
        missed: places in an answer of the tokens that no draft had, from `simulate_steps` only.
    """

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    rates: list[float] = field(default_factory=list)
    missed: set[int] = field(default_factory=set)

    @property
    def tokens_per_step(self) -> float:
        """Accepted length: mean tokens emitted by a step; 0 without steps."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def drafted_per_step(self) -> float:
        """Mean rows verified by a step, roots excluded; 0 without steps."""
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def mean_acceptance_rate(self) -> float:
        """The papers' MAR: the mean of the answers' rates; 0 where nothing was drafted."""
        return sum(self.rates) / len(self.rates) if self.rates else 0.0


@dataclass(frozen=True, slots=True)
class SimulatedDraft:
    """The draft at one position: the rows that the answer accepts, and the depth of each row."""

    accepted: tuple[int, ...]
    depths: tuple[int, ...]


def simulate(
    drafter: Drafter, recordings: Sequence[Recorded], budgets: Sequence[int]
) -> tuple[dict[int, SimulationCounts], list[float]]:
    """Counts by budget, and the seconds of every proposal."""
    counts = {budget: SimulationCounts() for budget in budgets}
    seconds: list[float] = []
    for recorded in recordings:
        drafts = list(_drafts(drafter, recorded, max(budgets), seconds))
        for budget, count in counts.items():
            _walk(drafts, budget, count)
    return counts, seconds


def _drafts(
    drafter: Drafter, recorded: Recorded, limit: int, seconds: list[float]
) -> Iterator[SimulatedDraft]:
    """The draft before each token of the answer but the first."""
    answer = recorded.answer
    context = Context([*recorded.prompt, *answer[:1]], np.zeros(0, dtype=np.float32), 0.0)
    successors = SuccessorTable(recorded.prompt)
    drafter.begin(context)
    drafter.observe(_step(context, successors, prefill=True))
    for position in range(1, len(answer)):
        started = perf_counter()
        tree = drafter.propose(context, limit)
        seconds.append(perf_counter() - started)
        yield SimulatedDraft(_accepted_rows(tree, answer[position:]), tuple(tree.depths()))
        context.tokens.append(answer[position])
        drafter.observe(_step(context, successors))


def simulate_steps(drafter: Drafter, recorded: Recorded, budget: int) -> SimulationCounts:
    """The counts of one answer at one budget.

    Unlike `simulate`, this consults the drafter only where a step begins: for drafters whose
    proposals are expensive.
    """
    answer, counts = recorded.answer, SimulationCounts(missed={0})
    context = Context([*recorded.prompt, *answer[:1]], recorded.state(0), 0.0)
    successors = SuccessorTable(recorded.prompt)
    drafter.begin(context)
    drafter.observe(_step(context, successors, prefill=True))
    position, chain, accepted = 1, 0, 0
    while position < len(answer):
        tree = drafter.propose(context, budget)
        hits = sum(row <= budget for row in _accepted_rows(tree, answer[position:]))
        chain += max(tree.depths()[: budget + 1])
        accepted += hits
        emitted = answer[position : position + hits + 1]
        counts.steps += 1
        counts.tokens += len(emitted)
        counts.drafted += min(budget, tree.drafted)
        for token in emitted:
            context.tokens.append(token)
            drafter.observe(_step(context, successors))
        counts.missed.add(position + hits)
        position += len(emitted)
        context.hidden = recorded.state(position - 1)
    if chain:
        counts.rates.append(accepted / chain)
    return counts


def _accepted_rows(tree: DraftTree, tokens: Sequence[int]) -> tuple[int, ...]:
    """Rows of `tree` that `tokens` pass through."""
    children = tree.children()
    accepted, row = [], 0
    for token in tokens:
        row = children[row].get(token, 0)
        if not row:
            break
        accepted.append(row)
    return tuple(accepted)


def _walk(drafts: Sequence[SimulatedDraft], budget: int, counts: SimulationCounts) -> None:
    position = chain = accepted = 0
    while position < len(drafts):
        draft = drafts[position]
        # Rows come after their parents, so the first row beyond the budget ends the walk.
        hits = sum(row <= budget for row in draft.accepted)
        emitted = min(hits + 1, len(drafts) - position)
        counts.steps += 1
        counts.tokens += emitted
        counts.drafted += min(budget, len(draft.depths) - 1)
        chain += max(draft.depths[: budget + 1])
        accepted += hits
        position += emitted
    if chain:
        counts.rates.append(accepted / chain)


class SuccessorTable:
    """The tokens that followed each token in this chat, latest first.

    Token recycling learns from the target's most probable tokens, which a recording lacks; these
    take their place.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._after: dict[int, list[int]] = {}
        for before, token in pairwise(tokens):
            self.add(before, token)

    def add(self, before: int, token: int) -> list[int]:
        """Record that `token` followed `before`; returns all its successors, latest first."""
        after = self._after.setdefault(before, [])
        if token in after:
            after.remove(token)
        after.insert(0, token)
        del after[MAX_SUCCESSORS:]
        return after


def _step(context: Context, successors: SuccessorTable, *, prefill: bool = False) -> Step:
    """The step that emitted the last token of `context`."""
    before, token = context.tokens[-2:]
    likeliest = list(successors.add(before, token))
    return Step(
        position=len(context.tokens) - 1,
        tokens=(token,),
        origins=(0,),
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
    """Several drafters as one, merged and calibrated as in the budget."""

    name = "all"
    top_tokens_needed = 0

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self._calibration = AcceptanceModel()

    def begin(self, context: Context) -> None:
        """Start a new answer; the calibration is kept."""
        self._calibration.drop_pending()
        for drafter in self._drafters:
            drafter.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable rows after calibration."""
        proposals = [
            Proposal(drafter.name, drafter.propose(context, limit), 0.0)
            for drafter in self._drafters
        ]
        merged = merge(context.root, proposals, context.temperature)
        paths = self._calibration.estimate(merged)
        self._calibration.add_pending(merged)
        return prune(merged.tree, by_probability(merged.tree, paths, chains_only=False)[:limit])

    def observe(self, step: Step) -> None:
        """Update the calibration and the drafters."""
        if not step.prefill:
            self._calibration.learn(step.tokens)
        for drafter in self._drafters:
            drafter.observe(step)
