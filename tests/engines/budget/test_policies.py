"""The two budgets: a hopeless drafter is paused, damaged proposals are dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import engines.budget.acceptance_model
import engines.budget.policies
import engines.budget.selection
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel, prior_ratio
from engines.budget.fixed import FixedBudget
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.draft_tree import CHATS, DRAFT_MODEL, PROMPT, DraftTree, chain
from engines.step import Context, Step, Timings
from tests.engines.scripted import ScriptedTarget

HIDDEN = np.zeros(4, np.float32)


def step_of(
    tree: DraftTree, seconds: float, planning: float = 0.0, tokens: tuple[int, ...] = (1,)
) -> Step:
    return Step(
        position=50,
        tokens=tokens,
        origins=(0,) * len(tokens),
        tree=tree,
        path=(0,),
        proposals=(),
        hidden=HIDDEN[None],
        top_tokens=[],
        top_logits=np.zeros((0, 0), np.float32),
        timings=Timings(seconds, planning, seconds + planning),
        prefill=False,
        finish="",
    )


class Hopeless:
    """A drafter that is always wrong."""

    name = "draft-model"
    top_tokens_needed = 0

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A token that never comes, with a high probability."""
        return chain(context.root, [63] * min(limit, 4), DRAFT_MODEL, 0.9)

    def observe(self, step: Step) -> None:
        """Nothing."""


def test_the_budget_pauses_a_hopeless_drafter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Consulting takes no time here: on a busy machine it might take long and trigger the backoff.
    for module in (engines.budget.policies, engines.budget.selection):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    budget = AdaptiveBudget(CostModel(), AcceptanceModel())
    context = Context([1] * 50, HIDDEN, 0.0)
    target = ScriptedTarget()
    budget.begin(context)
    verified = []
    for _ in range(400):
        tree, _ = budget.draft([Hopeless()], context, target, 60)
        verified.append(tree.drafted)
        budget.observe(step_of(tree, 0.010 * prior_ratio(len(tree))))
    assert sum(verified[:50]) > 0
    assert sum(verified[-200:]) <= 0.05 * 200
    status = budget.status(50)
    assert status.plain_measured
    assert status.plain_seconds == pytest.approx(0.010)


class Copying(Hopeless):
    """A drafter that copies a text: the name and the number of tokens are its own."""

    def __init__(self, name: str, tokens: int) -> None:
        self.name = name
        self._tokens = tokens

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Right tokens, from past chats."""
        return chain(context.root, [7] * min(limit, self._tokens), CHATS, 0.95)


def test_a_row_counts_for_the_drafter_that_proposed_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (engines.budget.policies, engines.budget.selection):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    backoffs = DrafterBackoffs()
    budget = AdaptiveBudget(CostModel(), AcceptanceModel(), backoffs)
    context, target = Context([1] * 50, HIDDEN, 0.0), ScriptedTarget()
    budget.begin(context)
    drafters = [Copying("suffix", 1), Copying("crest", 4)]
    for _ in range(60):
        tree, _ = budget.draft(drafters, context, target, 60)
        budget.observe(step_of(tree, 0.010, tokens=(7,) * len(tree)))
    assert backoffs["suffix"].utility > 0.5
    assert backoffs["crest"].utility > 1.0, "three of its rows are its own"


def test_a_draft_that_is_slower_than_the_last_ones_is_better_than_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (engines.budget.policies, engines.budget.selection):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    budget = AdaptiveBudget(CostModel(), AcceptanceModel())
    context, target = Context([1] * 50, HIDDEN, 0.0), ScriptedTarget()
    budget.begin(context)
    near_the_end = 9
    for room in [60] * 60 + [near_the_end]:
        tree, _ = budget.draft([Copying("prompt", 40)], context, target, room)
        rows = len(tree)
        budget.observe(step_of(tree, 0.004 + 0.006 * rows, tokens=(7,) * rows))
    assert rows == near_the_end, "9 tokens take 5.8 plain steps, 30 take 18.4"


class Damaged(Hopeless):
    """A drafter whose store holds an out-of-vocabulary id."""

    def __init__(self, token: int) -> None:
        self._token = token

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One valid token, and one that is not."""
        return chain(context.root, [5, self._token], DRAFT_MODEL, 0.9)


@pytest.mark.parametrize("token", [-1, ScriptedTarget.vocabulary_size])
@pytest.mark.parametrize("made", [AdaptiveBudget, partial(FixedBudget, 8)])
def test_out_of_vocabulary_ids_are_not_verified(made: Callable[..., Budget], token: int) -> None:
    budget = made(CostModel(), AcceptanceModel())
    context = Context([1] * 50, HIDDEN, 0.0)
    for _ in range(3):
        tree, proposals = budget.draft([Damaged(token)], context, ScriptedTarget(), 60)
        assert tree.drafted == 0
        assert all(proposal.tree.drafted == 0 for proposal in proposals)


class Sometimes(Hopeless):
    """A drafter without a hope, but for the moments when it is sure of a long draft."""

    name = "prompt"
    sure = False

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Fifteen tokens that are nearly certain, or one that is not likely at all."""
        tokens, claimed = ([7] * 15, 0.99) if self.sure else ([63], 0.02)
        return chain(context.root, tokens[:limit], PROMPT, claimed)


def test_a_long_sure_draft_is_verified_where_a_second_row_costs_more_than_it_brings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (engines.budget.policies, engines.budget.selection):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)
    costs = CostModel()
    for rows, ratio in ((1, 1.0), (2, 2.9), (16, 5.0)) * 15:
        costs.observe(rows, 50, 0.010 * ratio)
    budget = AdaptiveBudget(costs, AcceptanceModel())
    context, target, drafter = Context([1] * 50, HIDDEN, 0.0), ScriptedTarget(), Sometimes()
    budget.begin(context)
    drafted = []
    for step in range(200):
        drafter.sure = step % 40 == 39
        tree, _ = budget.draft([drafter], context, target, 60)
        if drafter.sure:
            drafted.append(tree.drafted)
        tokens = (7,) * len(tree) if drafter.sure else (1,)
        budget.observe(step_of(tree, 0.010 * costs.ratio(len(tree)), 0.001, tokens))
    assert min(drafted) > 1
