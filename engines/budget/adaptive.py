"""The budget: how many draft tokens are worth verifying, zero included.

Rows are added in order of P, the probability that the text passes through them. With τ(n) = 1 + Σ P
of the first n, it takes the n that maximises τ(n) − λ·(V(n + 1, L) + t_draft), where λ is the
long-run rate in tokens per second. (Maximising τ per second in each step by itself overspends where
the context is poor.) All n are looked at, since V has plateaus. A drafter is consulted only if what
it adds is worth its own time, cheapest first, and is asked again now and then: never switched off
for good. What all this may lose before it wins is bounded by `engines.budget.loss_limit`.

Owns λ and the gates. Costs come from `engines.budget.cost_model`, probabilities from
`engines.budget.acceptance_model`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import WIDTHS, CostModel
from engines.budget.loss_limit import DrafterBackoff, LossLimiter
from engines.budget.selection import (
    affordable,
    choose,
    consult,
    in_order,
    merge,
    prune,
    record,
    source_bits,
)
from engines.budget.status import BudgetStatus
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, Step, StepObserver
from engines.target import Target

Draft = tuple[DraftTree, tuple[Proposal, ...]]
"""What is to be verified, and everything that was proposed."""

MOST_ROWS = WIDTHS[-1]
"""Widest tree ever considered."""
MOST_GAIN = 8.0
"""Tokens a call can hope to add at best: rows beyond this worth of time are not asked for."""
RESAMPLE = 96
"""Steps between plain calls made only to measure what plain costs."""
LEAST_REACH = 6
"""Rows beside the root that drafters may always propose."""
REACH_DECAY = 0.8
"""What one plan leaves of the reach: asking for twice the rows that are used costs drafters and
planning less than asking for all that could ever pay."""
PROBE_SHARE = 0.005
"""Share of decoding time that may go into measuring unknown widths."""
MEMORY = 0.995
"""Decay of λ's sums at each step."""
RECENT = 12
"""Steps without a draft after which drafting counts as paused."""


class Budget(StepObserver, Protocol):
    """Decides what each forward pass verifies."""

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """The tree to verify, at most `room` rows, the root included."""
        ...

    def keep(self, drafters: Sequence[Drafter]) -> int:
        """How many of the likeliest tokens the loop should keep for the drafters listened to."""
        ...

    def outlook(self, length: int) -> BudgetStatus:
        """How drafting fares at context length `length`."""
        ...


@dataclass(slots=True)
class Plan:
    """A merged draft, its rows in order of P, and the budget's choice among them."""

    tree: DraftTree
    order: list[int]
    paths: list[float]
    chosen: int
    loss: float


class AutoBudget:
    """Verifies as many draft tokens as pay on this machine, at this point of this text."""

    def __init__(self, costs: CostModel, calibration: AcceptanceModel) -> None:
        self._costs = costs
        self._calibration = calibration
        self._gates = defaultdict[str, DrafterBackoff](DrafterBackoff)
        self._purse = LossLimiter()
        self._reach = float(MOST_ROWS)
        self._tokens = 0.0
        self._seconds = 0.0
        self._spent_probing = 0.0
        self._decoded = 0.0
        self._since_plain = RESAMPLE
        self._since_draft = 0
        self._loss = 0.0

    def begin(self, context: Context) -> None:
        """A new answer: old proposals are not scored against its text."""
        self._calibration.forget_waiting()

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """The rows that pay, or the root alone."""
        length = len(context.tokens)
        if room <= 1 or not drafters or self._due_plain(length):
            self._since_plain = 0
            return root_only(context.root), ()
        self._since_plain += 1
        opened = [drafter for drafter in drafters if self._gates[drafter.name].opens()]
        if not opened:
            return root_only(context.root), ()
        table = self._costs.table(length)
        limit = min(room - 1, self._limit(table))
        proposals, seconds = self._consult(opened, context, limit, target.vocabulary_size)
        if not any(len(proposal.tree) > 1 for proposal in proposals):
            for proposal in proposals:
                self._gates[proposal.drafter].settle(0.0, proposal.seconds, self._rate(table[1]))
            return root_only(context.root), tuple(proposals)
        started = perf_counter()
        plan = self._plan(context, proposals, table, limit, seconds, target.chains_only)
        self._settle(plan, proposals, table, perf_counter() - started)
        return prune(plan.tree, plan.order[: plan.chosen]), tuple(proposals)

    def keep(self, drafters: Sequence[Drafter]) -> int:
        """As many as any drafter learns from that is not paused for long."""
        return max(
            (drafter.learns_from for drafter in drafters if self._gates[drafter.name].listens),
            default=0,
        )

    def observe(self, step: Step) -> None:
        """Learn costs, λ and calibration from what came."""
        if step.prefill:
            return
        self._calibration.learn(step.tokens)
        record(self._costs, step)
        self._purse.settle(len(step.tokens), self._costs.ratio(len(step.tree)) - 1.0)
        self._tokens = self._tokens * MEMORY + len(step.tokens)
        self._seconds = self._seconds * MEMORY + step.timings.total
        self._decoded += step.timings.total
        self._since_draft = 0 if step.drafted else self._since_draft + 1

    def outlook(self, length: int) -> BudgetStatus:
        """How drafting fares at context length `length`."""
        paused = self._since_draft >= RECENT and bool(self._gates)
        return BudgetStatus(
            self._costs.plain(length),
            self._costs.measured(length),
            paused,
            self._loss if paused else 0.0,
            self._calibration.would_accept(),
        )

    def _rate(self, plain: float) -> float:
        """λ, tokens per second over the long run; at least what plain decoding reaches."""
        live = self._tokens / self._seconds if self._seconds > 0 else 0.0
        return max(live, 1.0 / plain)

    def _due_plain(self, length: int) -> bool:
        return self._since_plain >= (RESAMPLE if self._costs.measured(length) else 2)

    def _limit(self, table: list[float]) -> int:
        """The most rows beside the root that could pay, if nearly all were accepted, and that are
        likely to be used."""
        allowed = table[1] + MOST_GAIN / self._rate(table[1])
        most = 1 + max(LEAST_REACH, int(self._reach))
        rows = 2
        while rows < min(most, MOST_ROWS) and table[rows + 1] <= allowed:
            rows += 1
        return rows - 1

    def _consult(
        self, drafters: Sequence[Drafter], context: Context, limit: int, vocabulary: int
    ) -> tuple[list[Proposal], float]:
        """Ask the drafters, cheapest first; their proposals and the time they took."""
        ranked = sorted(drafters, key=lambda drafter: self._gates[drafter.name].seconds)
        proposals = [consult(drafter, context, limit, vocabulary) for drafter in ranked]
        return proposals, sum(proposal.seconds for proposal in proposals)

    def _plan(
        self,
        context: Context,
        proposals: list[Proposal],
        table: list[float],
        limit: int,
        seconds: float,
        chains_only: bool,
    ) -> Plan:
        merged = merge(context.root, proposals, context.temperature)
        paths = self._calibration.estimate(merged)
        self._calibration.expect(merged, paths)
        order = in_order(merged.tree, paths, chains_only)[:limit]
        rate = self._rate(table[1])
        gains = [paths[row] for row in order]
        chosen, loss = choose(gains, table, rate, seconds)
        chosen = affordable(chosen, gains, table, self._purse)
        self._reach = max(self._reach * REACH_DECAY, 2.0 * chosen + 4.0)
        chosen = max(chosen, self._probe_width(table, len(order)))
        return Plan(merged.tree, order, paths, chosen, loss)

    def _probe_width(self, table: list[float], available: int) -> int:
        """Rows to verify only to learn their cost, within `PROBE_SHARE`; else 0."""
        for rows in self._costs.unmeasured():
            extra = table[rows] - table[1]
            if rows - 1 > available:
                return 0
            if self._spent_probing + extra <= PROBE_SHARE * self._decoded:
                self._spent_probing += extra
                return rows - 1
            return 0
        return 0

    def _settle(
        self, plan: Plan, proposals: list[Proposal], table: list[float], planning: float
    ) -> None:
        """Tell each gate its drafter's worth; rows count for the cheapest that proposed them."""
        self._loss = plan.loss
        rate = self._rate(table[1])
        rows = plan.order[: plan.chosen]
        price = rate * (table[len(rows) + 1] - table[1]) / max(len(rows), 1)
        worth = [plan.paths[row] - price for row in rows]
        share = planning / len(proposals)
        seen = 0
        for proposal in proposals:
            bits = source_bits(proposal.tree) & ~seen
            seen |= bits
            gain = sum(
                value
                for row, value in zip(rows, worth, strict=True)
                if plan.tree.sources[row] & bits and not plan.tree.sources[row] & seen & ~bits
            )
            self._gates[proposal.drafter].settle(gain, proposal.seconds + share, rate)
