"""The adaptive budget: it verifies as many draft tokens as pay.

Rows are added in order of P, the probability that the text passes through them. With
τ(n) = 1 + Σ P of the first n, it takes the n that maximises τ(n) ÷ V(n + 1, L), this step's tokens
per second. Every n is evaluated, since V has plateaus and dips.

That is the best choice where the next steps are like this one, as along a copied text. The best
where they are independent maximises τ(n) − λ·V(n + 1, L), λ being the long-run rate; but after a
text that was copied fast it took no draft that was slower than λ, though still twice as fast as
none, and whole answers were written without. Chats take the same time with both, code that an agent
changes .87 and .92 of it, copied prose .94 and .88 (virtual time at the costs of SmolLM2-135M and
of Qwen2.5-Coder 1.5B).

Drafters that take next to no time, usually prompt lookup, are consulted at every step, since only
they notice when an old text begins again. Any other is consulted while what it adds to their draft
is worth its own time, and is retried at intervals, so that none is switched off for good. A slow
one, usually a draft model, comes last, after the others' draft is planned. The others may then
continue a draft model's draft (`engines.budget.continuation`). `engines.budget.loss_limit` bounds
what all this may lose before it wins.

Costs come from `engines.budget.cost_model`, probabilities from `engines.budget.acceptance_model`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.continuation import SecondRound
from engines.budget.cost_model import WIDTHS, CostModel
from engines.budget.loss_limit import DrafterBackoff, DrafterBackoffs, LossLimiter
from engines.budget.protocol import BudgetStatus, Draft
from engines.budget.selection import (
    MARGIN,
    MergedDraft,
    affordable,
    by_probability,
    choose_count,
    consult,
    graft,
    merge,
    prune,
    record_cost,
    with_reevaluations,
)
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, Step
from engines.target import Target

MAX_ROWS = WIDTHS[-1]
"""Widest tree ever considered."""
PLAIN_INTERVAL_STEPS = 96
"""Steps between plain ones made only to measure their cost."""
MIN_REACH_ROWS = 6
"""Rows, the root excluded, that drafters may always propose."""
REACH_DECAY = 0.8
"""Decay of the reach with each plan. Requesting twice the rows that are likely costs drafters and
planning less than requesting all that could ever pay. Likely rows count rather than chosen ones,
since V may fall again beyond the rows requested."""
LIKELY_PATH = 0.4
"""P from which on a row counts as likely."""
PROBE_SHARE = 0.005
"""Share of decoding time that may be spent on measuring unknown widths."""
OVERHEAD_SHARE = 0.02
"""Share of the speed that planning and learning may cost, without the drafters' time, where
drafting brings nothing, whatever it has won before. They take 0.1 ms a step, a tenth of the
smallest targets' pass. With twice the share after winnings, the median chat was 0.5 to 2.5 % slower
and all chats together as fast (virtual time, embedded model, 12 to 16 chats)."""
MAX_LEARNING_GAP_STEPS = 3
"""Longest pause of all drafting during which drafters continue to learn."""
FREE_TOKENS, SLOW_TOKENS = 0.005, 0.1
"""A drafter is free if a consultation takes the time of fewer tokens than the former, and slow if
it takes that of more than the latter."""
SITUATIONS = (0.3, 1.5)
"""Expected tokens of the faster drafters at the borders between three situations. Whether a drafter
is consulted is decided separately in each."""
MIN_PATH = 0.05
"""Path probability below which further tokens hardly add to the expected tokens of a proposal."""
WEAK_SHARE = 0.5
"""Share of the required gain below which the best first token is planned for only at intervals,
which estimates need in order to learn."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What all plans of one step are made from.

    Attributes:
        table: V by number of rows.
        limit: most rows, the root excluded.
    """

    context: Context
    target: Target
    table: list[float]
    limit: int

    @property
    def rate(self) -> float:
        """Tokens per second without drafts: what time is worth."""
        return 1.0 / self.table[1]

    def consult(self, drafter: Drafter) -> Proposal:
        """The proposal of `drafter` at the root."""
        return consult(drafter, self.context, self.limit, self.target.vocabulary_size)


@dataclass(slots=True)
class Plan:
    """A merged draft, its rows in order of P, and the budget's choice among them.

    Attributes:
        value: plain passes that the chosen rows are expected to save, up to a constant.
        table: V by number of rows, with the expected re-evaluations.
    """

    tree: DraftTree
    order: list[int]
    paths: list[float]
    chosen: int
    value: float
    table: Sequence[float]


class AdaptiveBudget:
    """Verifies as many draft tokens as pay on this machine at this position of the text."""

    def __init__(
        self,
        costs: CostModel,
        calibration: AcceptanceModel,
        backoffs: DrafterBackoffs | None = None,
    ) -> None:
        self._costs = costs
        self._calibration = calibration
        self._backoffs = DrafterBackoffs() if backoffs is None else backoffs
        self._situations: dict[tuple[str, int], DrafterBackoff] = {}
        self._asked: dict[str, DrafterBackoff] = {}
        self._second_round = SecondRound()
        self._drafting = DrafterBackoff(polling_share=OVERHEAD_SHARE, winnings_share=OVERHEAD_SHARE)
        self._limiter = LossLimiter()
        self._reach = float(MAX_ROWS)
        self._probe_seconds = 0.0
        self._decode_seconds = 0.0
        self._since_plain = PLAIN_INTERVAL_STEPS
        self._consulting = False

    def begin(self, context: Context) -> None:
        """Start a new answer; old proposals are not scored against its text."""
        self._calibration.drop_pending()

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """The rows that pay, or the root alone."""
        length = len(context.tokens)
        if room <= 1 or not drafters or self._plain_is_due(length):
            self._since_plain, self._consulting = 0, False
            return root_only(context.root), ()
        self._since_plain += 1
        table = self._costs.table(length)
        limit = min(room - 1, self._limit(table))
        context.row_price = (table[limit + 1] / table[1] - 1.0) / limit
        inputs = PlanInputs(context, target, table, limit)
        ranked = sorted(drafters, key=lambda drafter: self._backoffs[drafter.name].seconds)
        ready, proposals, slow = self._consult(ranked, inputs)
        self._consulting = self._worth_planning(proposals, bool(slow), inputs)
        if not self._consulting:
            for proposal in proposals:
                self._record_use(proposal, 0.0, proposal.seconds, inputs.rate)
            return root_only(context.root), tuple(proposals)
        started = perf_counter()
        merged = merge(context.root, proposals, context.temperature)
        plan = self._plan(merged, inputs)
        self._record_utilities(merged, plan, proposals, perf_counter() - started)
        for drafter in slow:
            backoff = self._in_situation(drafter, _expected(plan))
            if backoff.should_consult():
                proposals.append(inputs.consult(drafter))
                ready.append(drafter)
                plan = self._extend(merged, plan, proposals[-1], backoff, inputs)
        if len(merged.tree) == 1:
            return root_only(context.root), tuple(proposals)
        rows = plan.order[: plan.chosen]
        size = target.vocabulary_size
        added = self._second_round.propose(ready, context, merged, rows, limit, size)
        if added:
            plan = self._continue(merged, plan, added, inputs)
        self._calibration.add_pending(merged)
        likely = sum(plan.paths[row] >= LIKELY_PATH for row in plan.order)
        self._reach = max(self._reach * REACH_DECAY, 2.0 * likely + 4.0)
        plan.chosen = max(plan.chosen, self._probe_rows(table, len(plan.order)))
        return prune(plan.tree, plan.order[: plan.chosen]), (*proposals, *added)

    def _consult(
        self, ranked: Sequence[Drafter], inputs: PlanInputs
    ) -> tuple[list[Drafter], list[Proposal], list[Drafter]]:
        """Consult those of the `ranked` drafters, cheapest first, that are worth it at this step.

        Returns:
            drafters consulted, their proposals, and the slow drafters, which are left for later.
        """
        ready: list[Drafter] = []
        proposals: list[Proposal] = []
        expected = 0.0
        for number, drafter in enumerate(ranked):
            tokens = inputs.rate * self._backoffs[drafter.name].seconds
            if tokens > SLOW_TOKENS:
                return ready, proposals, list(ranked[number:])
            if tokens > FREE_TOKENS:
                backoff = self._in_situation(drafter, expected)
                if not backoff.should_consult():
                    continue
                self._asked[drafter.name] = backoff
            proposal = inputs.consult(drafter)
            ready.append(drafter)
            proposals.append(proposal)
            expected = max(expected, _promised(proposal))
        return ready, proposals, []

    def _worth_planning(
        self, proposals: Sequence[Proposal], more: bool, inputs: PlanInputs
    ) -> bool:
        """Whether to merge, estimate and choose: either some first token may pay, or it is time to
        try weak ones, or the slow drafters if there are `more`.

        The required gain of a row is its cost in the draft in which rows are cheapest: a second row
        may cost more than it can bring, and sixteen less.
        """
        drafts = [proposal for proposal in proposals if len(proposal.tree) > 1]
        if drafts:
            table, widths = inputs.table, range(2, inputs.limit + 2)
            cheapest = min((table[rows] / table[1] - 1.0) / (rows - 1) for rows in widths)
            needed = WEAK_SHARE * MARGIN * cheapest
            for proposal in drafts:
                if self._calibration.best_first(proposal, inputs.context.temperature) >= needed:
                    return True
        return bool(drafts or more) and self._drafting.should_consult()

    def _in_situation(self, drafter: Drafter, expected: float) -> DrafterBackoff:
        """The backoff of a drafter where faster ones are expected to add `expected` tokens.

        The gain of a draft model depends on that most of all: 0.4 tokens where the others had none,
        0.1 where they expected four, both for the time of 0.2 to 0.3 (embedded model, four times as
        wide). A new situation starts with the drafter's average, but not with that of its first
        consultation alone, which reads the prompt.
        """
        key = drafter.name, bisect(SITUATIONS, expected)
        if key not in self._situations:
            average = self._backoffs[drafter.name]
            known = average.utility if average.consultations > 1 else 0.0
            self._situations[key] = replace(average, utility=known, consultations=2, skipped=0)
        return self._situations[key]

    def _extend(
        self,
        merged: MergedDraft,
        plan: Plan,
        proposal: Proposal,
        backoff: DrafterBackoff,
        inputs: PlanInputs,
    ) -> Plan:
        """The plan with a slow drafter's proposal. The recorded gain is how much better the new
        plan is than the old one, both estimated with the proposal."""
        started, gain = perf_counter(), 0.0
        if len(proposal.tree) > 1:
            graft(merged, proposal)
            rows = plan.order[: plan.chosen]
            plan = self._plan(merged, inputs)
            gains = [plan.paths[row] for row in rows]
            gain = (
                plan.value - sum(gains) + inputs.rate * self._priced(gains, inputs)[len(rows) + 1]
            )
        seconds = proposal.seconds + perf_counter() - started
        for one in (backoff, self._backoffs[proposal.drafter]):
            one.record(gain, seconds, inputs.rate)
        return plan

    def top_tokens_needed(self, drafters: Sequence[Drafter]) -> int:
        """The most that any drafter learns from that is not paused for long; 0 if all are."""
        if self._drafting.pause > MAX_LEARNING_GAP_STEPS:
            return 0
        needed = 0
        for drafter in drafters:
            count = drafter.top_tokens_needed
            if count > needed and self._backoffs[drafter.name].keeps_learning:
                needed = count
        return needed

    def observe(self, step: Step) -> None:
        """Learn costs and calibration from the step."""
        if step.prefill:
            return
        self._calibration.learn(step.tokens)
        record_cost(self._costs, step)
        extra = self._costs.ratio(len(step.tree)) - 1.0
        if step.timings.reevaluation:
            extra += step.timings.reevaluation / self._costs.plain(step.position)
        self._limiter.record(len(step.tokens), extra)
        self._record_drafting(step, extra)
        self._decode_seconds += step.timings.total

    def _record_drafting(self, step: Step, extra: float) -> None:
        """Record the gain of drafting as a whole in a step for which drafters were consulted.

        Args:
            extra: cost of the step's pass beyond a plain one, in plain passes.
        """
        if self._consulting:
            gain = len(step.tokens) - 1 - extra
            consulted = sum(proposal.seconds for proposal in step.proposals)
            rate = 1.0 / self._costs.plain(step.position)
            self._drafting.record(gain, step.timings.draft - consulted, rate)

    def status(self, length: int) -> BudgetStatus:
        """See `Budget.status`."""
        return BudgetStatus(self._costs.plain(length), self._costs.measured(length))

    def _plain_is_due(self, length: int) -> bool:
        return self._since_plain >= PLAIN_INTERVAL_STEPS or not self._costs.measured(length)

    def _limit(self, table: Sequence[float]) -> int:
        """The most rows, the root excluded, that would pay if all were accepted and that are likely
        to be used."""
        most = min(1 + max(MIN_REACH_ROWS, int(self._reach)), MAX_ROWS)
        paying = (rows for rows in range(most, 2, -1) if table[rows] < rows * table[1])
        return next(paying, 2) - 1

    def _plan(self, merged: MergedDraft, inputs: PlanInputs) -> Plan:
        table = inputs.table
        if len(merged.tree) == 1:
            return Plan(merged.tree, [], [1.0], 0, -1.0, table)
        paths = self._calibration.estimate(merged)
        order = by_probability(merged.tree, paths, inputs.target.chains_only)[: inputs.limit]
        gains = [paths[row] for row in order]
        priced = self._priced(gains, inputs)
        chosen = choose_count(gains, priced)
        chosen = affordable(chosen, gains, priced, self._limiter)
        value = sum(gains[:chosen]) - priced[chosen + 1] / table[1]
        return Plan(merged.tree, order, paths, chosen, value, priced)

    def _priced(self, gains: Sequence[float], inputs: PlanInputs) -> Sequence[float]:
        """V by number of rows, with the re-evaluations to expect of rows with these gains."""
        rollback_rows = inputs.target.rollback_rows
        return with_reevaluations(inputs.table, gains, rollback_rows, self._costs.reevaluation)

    def _continue(
        self, merged: MergedDraft, plan: Plan, added: Sequence[Proposal], inputs: PlanInputs
    ) -> Plan:
        """The plan with the second round's proposals, whose gain is recorded."""
        started = perf_counter()
        before, size = plan.value, len(merged.tree)
        for proposal in added:
            graft(merged, proposal)
        if len(merged.tree) > size:
            plan = self._plan(merged, inputs)
        rows = {row: plan.paths[row] for row in plan.order[: plan.chosen] if row >= size}
        gain, planning = plan.value - before, perf_counter() - started
        self._second_round.record(added, merged, rows, gain, planning, inputs.rate)
        return plan

    def _probe_rows(self, table: list[float], available: int) -> int:
        """Rows to verify only to measure their cost, within `PROBE_SHARE`; else 0."""
        for rows in self._costs.unmeasured():
            extra = table[rows] - table[1]
            if rows - 1 > available:
                return 0
            if self._probe_seconds + extra <= PROBE_SHARE * self._decode_seconds:
                self._probe_seconds += extra
                return rows - 1
            return 0
        return 0

    def _record_utilities(
        self, merged: MergedDraft, plan: Plan, proposals: list[Proposal], planning: float
    ) -> None:
        """Record each drafter's gain in the first round; a row is credited to the cheapest drafter
        that proposed it."""
        plain = plan.table[1]
        price = (plan.table[plan.chosen + 1] / plain - 1.0) / max(plan.chosen, 1)
        unclaimed = [
            (merged.drafters(row), plan.paths[row] - price) for row in plan.order[: plan.chosen]
        ]
        share = planning / max(len(proposals), 1)
        for proposal in proposals:
            name = proposal.drafter
            gain = sum([utility for names, utility in unclaimed if name in names])
            unclaimed = [one for one in unclaimed if name not in one[0]]
            self._record_use(proposal, gain, proposal.seconds + share, 1.0 / plain)

    def _record_use(self, proposal: Proposal, gain: float, seconds: float, rate: float) -> None:
        """Record the gain of a consultation, overall and in this situation."""
        self._backoffs[proposal.drafter].record(gain, seconds, rate)
        if proposal.drafter in self._asked:
            self._asked.pop(proposal.drafter).record(gain, seconds, rate)


def _expected(plan: Plan) -> float:
    """Expected number of accepted tokens of the chosen rows."""
    return sum(plan.paths[row] for row in plan.order[: plan.chosen])


def _promised(proposal: Proposal) -> float:
    """Expected tokens of a proposal's first path by its drafter's own probabilities."""
    tree, path, total = proposal.tree, 1.0, 0.0
    for row in range(1, len(tree)):
        path *= tree.probabilities[row]
        if tree.parents[row] != row - 1 or path < MIN_PATH or total > SITUATIONS[-1]:
            break
        total += path
    return total
