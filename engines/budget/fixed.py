"""A fixed draft length (`--draft-tokens N`), for tests and studies."""

from __future__ import annotations

from collections.abc import Sequence

from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.protocol import BudgetStatus, Draft
from engines.budget.selection import by_probability, consult, merge, prune, record_cost
from engines.draft_tree import root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Step
from engines.target import Target


class FixedBudget:
    """Verifies the `count` most probable draft tokens at every step; 0 is plain decoding."""

    def __init__(self, count: int, costs: CostModel, calibration: AcceptanceModel) -> None:
        self._count = count
        self._costs = costs
        self._calibration = calibration

    def begin(self, context: Context) -> None:
        """Start a new answer; old proposals are not scored against its text."""
        self._calibration.drop_pending()

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """The `count` most probable rows, or as many as `room` and the drafters allow."""
        count = min(self._count, room - 1)
        if count < 1 or not drafters:
            return root_only(context.root), ()
        proposals = [
            consult(drafter, context, count, target.vocabulary_size) for drafter in drafters
        ]
        merged = merge(context.root, proposals, context.temperature)
        paths = self._calibration.estimate(merged)
        self._calibration.add_pending(merged)
        order = by_probability(merged.tree, paths, target.chains_only)
        return prune(merged.tree, order[:count]), tuple(proposals)

    def top_tokens_needed(self, drafters: Sequence[Drafter]) -> int:
        """The most that any drafter learns from."""
        return max((drafter.top_tokens_needed for drafter in drafters), default=0)

    def observe(self, step: Step) -> None:
        """Learn costs and calibration from the step."""
        self._calibration.learn(step.tokens)
        record_cost(self._costs, step)

    def status(self, length: int) -> BudgetStatus:
        """See `Budget.status`."""
        return BudgetStatus(self._costs.plain(length), self._costs.measured(length))
