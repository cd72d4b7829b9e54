"""Merging, calibration, costs and the budget's choice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engines.budget.acceptance_model
import engines.budget.policies
import engines.budget.selection
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel, prior_ratio
from engines.budget.loss_limit import MAX_PAUSE_STEPS, DrafterBackoff
from engines.budget.policies import AdaptiveBudget, FixedBudget
from engines.budget.protocol import Budget
from engines.budget.selection import BASE, FEATURES, by_probability, choose_count, merge, prune
from engines.draft_tree import PROMPT, RECYCLE, STUDENT, DraftTree, chain, root_only
from engines.step import Context, Proposal, Step, Timings
from tests.engines.scripted import ScriptedTarget

HIDDEN = np.zeros(4, np.float32)


@st.composite
def trees(draw: st.DrawFn, source: int = STUDENT, rows: int = 12) -> DraftTree:
    """Valid trees over a tiny vocabulary, so that they overlap."""
    tree = root_only(0)
    for _ in range(draw(st.integers(0, rows))):
        parent = draw(st.integers(0, len(tree) - 1))
        token = draw(st.integers(0, 4))
        if token not in tree.children()[parent]:
            tree.add(parent, token, source, draw(st.floats(0, 1)), draw(st.floats(0, 9)))
    return tree


def paths(tree: DraftTree) -> dict[tuple[int, ...], int]:
    """Every path of the tree with the sources of its last row."""
    found: dict[int, tuple[int, ...]] = {0: ()}
    for row in range(1, len(tree)):
        found[row] = (*found[tree.parents[row]], tree.tokens[row])
    return {found[row]: tree.sources[row] for row in range(1, len(tree))}


@given(trees(PROMPT), trees(RECYCLE))
def test_a_merged_tree_is_the_union_of_its_parts(one: DraftTree, other: DraftTree) -> None:
    proposals = [Proposal("prompt", one, 0.0), Proposal("recycle", other, 0.0)]
    merged = merge(0, proposals, 0.7)
    union = dict(paths(one))
    for path, sources in paths(other).items():
        union[path] = union.get(path, 0) | sources
    assert paths(merged.tree) == union
    features = [dict(merged.features(row)) for row in range(1, len(merged.tree))]
    assert sum(row.get(BASE["prompt"], 0.0) for row in features) == one.drafted
    assert sum(row.get(BASE["recycle"], 0.0) for row in features) == other.drafted
    weights = np.random.default_rng(one.drafted).normal(size=FEATURES).tolist()
    expected = [0.0, *(sum(weights[i] * value for i, value in row.items()) for row in features)]
    assert merged.scores(weights) == pytest.approx(expected)


@given(trees(PROMPT), trees(RECYCLE), st.integers(0, 24))
def test_estimates_are_probabilities_and_prune_keeps_a_tree(
    one: DraftTree, other: DraftTree, count: int
) -> None:
    merged = merge(0, [Proposal("prompt", one, 0.0), Proposal("recycle", other, 0.0)], 0.0)
    chances = AcceptanceModel().estimate(merged)
    tree = merged.tree
    for row, children in enumerate(tree.children()):
        assert sum(tree.probabilities[child] for child in children.values()) <= 1.0 + 1e-9
        assert all(chances[child] <= chances[row] + 1e-12 for child in children.values())
    order = by_probability(tree, chances, chains_only=False)
    kept = prune(tree, order[:count])
    assert paths(kept).items() <= paths(tree).items()
    assert kept.drafted == min(count, tree.drafted)
    single = prune(tree, by_probability(tree, chances, chains_only=True))
    assert single.is_chain()


def test_calibration_learns_which_drafter_is_right() -> None:
    random = np.random.default_rng(0)
    calibration = AcceptanceModel()
    for _ in range(3000):
        truth = int(random.integers(1, 50))
        liar = chain(0, [int(random.integers(1, 50))], PROMPT, 0.9)
        honest = chain(0, [truth if random.random() < 0.7 else 99], RECYCLE, 0.3)
        merged = merge(0, [Proposal("prompt", liar, 0.0), Proposal("recycle", honest, 0.0)], 0.0)
        calibration.add_pending(merged, calibration.estimate(merged))
        calibration.learn([truth])
    merged = merge(
        0,
        [
            Proposal("prompt", chain(0, [1], PROMPT, 0.9), 0.0),
            Proposal("recycle", chain(0, [2], RECYCLE, 0.3), 0.0),
        ],
        0.0,
    )
    calibration.estimate(merged)
    assert merged.tree.probabilities[1] < 0.1
    assert merged.tree.probabilities[2] == pytest.approx(0.7, abs=0.12)
    restored = AcceptanceModel()
    restored.restore(calibration.state())
    restored.estimate(merged)
    assert merged.tree.probabilities[2] == pytest.approx(0.7, abs=0.12)


def test_a_long_silent_drafter_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As after millions of tokens.
    monkeypatch.setattr(engines.budget.acceptance_model, "SQUARES_DECAY", 0.0)
    calibration = AcceptanceModel()
    for _ in range(100):
        merged = merge(0, [Proposal("prompt", chain(0, [1, 2], PROMPT, 0.9), 0.0)], 0.0)
        calibration.add_pending(merged, calibration.estimate(merged))
        calibration.learn([1, 2])
    assert np.isfinite(calibration.state()["weights"]).all()


def test_hindsight_scores_proposals_that_were_never_verified() -> None:
    calibration = AcceptanceModel()
    merged = merge(0, [Proposal("prompt", chain(0, [1, 2, 3], PROMPT), 0.0)], 0.0)
    calibration.add_pending(merged, calibration.estimate(merged))
    calibration.learn([1])
    assert calibration.counterfactual_acceptance() == {}
    calibration.learn([2])
    calibration.learn([9])
    assert calibration.counterfactual_acceptance() == {"prompt": pytest.approx(2 / 3)}


@given(
    st.lists(st.floats(0, 1), max_size=30),
    st.lists(st.floats(0, 1e-2), min_size=31, max_size=31),
    st.floats(1, 2000),
)
def test_choose_count_equals_trying_every_length(
    gains: list[float], steps: list[float], rate: float
) -> None:
    gains = sorted(gains, reverse=True)
    table = [0.0, *np.cumsum([1e-3, *steps]).tolist()]
    values = [1 + sum(gains[:count]) - rate * table[count + 1] for count in range(len(gains) + 1)]
    chosen, loss = choose_count(gains, table, rate, 0.0)
    assert values[chosen] == pytest.approx(max(values))
    assert 0.0 <= loss < 1.0


def test_costs_are_learned_and_stay_monotone() -> None:
    costs = CostModel()
    assert costs.table(10)[8] == pytest.approx(costs.plain(10) * prior_ratio(8))
    for _ in range(15):
        costs.observe(1, 100, 0.010)
        costs.observe(4, 100, 0.012)
        costs.observe(8, 100, 0.011)
        costs.observe(16, 100, 0.030)
    table = costs.table(100)
    assert costs.measured(100)
    assert not costs.measured(5000)
    assert table[1] == pytest.approx(0.010)
    assert table[4] == table[8] == pytest.approx(0.012, rel=0.06)
    assert table[16] == pytest.approx(0.030, rel=0.06)
    assert table[1:] == sorted(table[1:])
    again = CostModel()
    again.restore(costs.state())
    assert again.table(100) == pytest.approx(table, rel=0.02)
    assert not again.measured(100)


def test_a_few_samples_of_one_width_inform_all_widths() -> None:
    flat, steep = CostModel(), CostModel()
    for costs, seconds in ((flat, 0.0101), (steep, 0.060)):
        for _ in range(5):
            costs.observe(1, 100, 0.010)
            costs.observe(8, 100, seconds)
    assert flat.table(100)[16] < 0.02 < 0.09 < steep.table(100)[16]


def test_outliers_at_one_width_do_not_raise_all_wider_ones() -> None:
    costs = CostModel()
    for _ in range(15):
        costs.observe(1, 100, 0.010)
        costs.observe(8, 100, 0.020)
    for _ in range(3):
        costs.observe(2, 100, 0.100)
    assert costs.table(100)[8] < 0.035
    for _ in range(2000):
        costs.observe(8, 100, 0.020)
    assert 2 in costs.unmeasured()
    assert costs.table(100)[2] <= costs.table(100)[8] == pytest.approx(0.020, rel=0.05)


def test_an_outlier_does_not_move_the_costs() -> None:
    costs = CostModel()
    for _ in range(9):
        costs.observe(1, 100, 0.010)
    costs.observe(1, 100, 5.0)
    assert costs.plain(100) == pytest.approx(0.010)


def test_a_bad_drafter_is_consulted_seldom_but_never_dropped() -> None:
    backoff = DrafterBackoff()
    rate = 100.0
    consulted = 0
    for _ in range(1000):
        if backoff.should_consult():
            consulted += 1
            backoff.record(0.0, 0.01, rate)
    assert 1000 / (MAX_PAUSE_STEPS + 1) < consulted < 60
    for _ in range(MAX_PAUSE_STEPS + 1):
        if backoff.should_consult():
            backoff.record(60.0, 0.01, rate)
    assert backoff.should_consult()


def step_of(tree: DraftTree, seconds: float) -> Step:
    return Step(
        position=50,
        tokens=(1,),
        sources=(0,),
        tree=tree,
        path=(0,),
        proposals=(),
        hidden=HIDDEN[None],
        top_tokens=[],
        top_logits=np.zeros((0, 0), np.float32),
        timings=Timings(seconds, 0.0, seconds),
        prefill=False,
        finish="",
    )


class Hopeless:
    """A drafter that is always wrong."""

    name = "student"
    top_tokens_needed = 0

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A token that never comes, with a high probability."""
        return chain(context.root, [63] * min(limit, 4), STUDENT, 0.9)

    def observe(self, step: Step) -> None:
        """Nothing."""


def test_the_budget_pauses_a_hopeless_drafter_and_reports_it(
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
    assert status.paused
    assert status.loss > 0.0
    assert status.plain_measured
    assert status.plain_seconds == pytest.approx(0.010)


class Damaged(Hopeless):
    """A drafter whose store holds an out-of-vocabulary id."""

    def __init__(self, token: int) -> None:
        self._token = token

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One valid token, and one that is not."""
        return chain(context.root, [5, self._token], STUDENT, 0.9)


@pytest.mark.parametrize("token", [-1, ScriptedTarget.vocabulary_size])
@pytest.mark.parametrize("made", [AdaptiveBudget, partial(FixedBudget, 8)])
def test_out_of_vocabulary_ids_are_not_verified(made: Callable[..., Budget], token: int) -> None:
    budget = made(CostModel(), AcceptanceModel())
    context = Context([1] * 50, HIDDEN, 0.0)
    for _ in range(3):
        tree, proposals = budget.draft([Damaged(token)], context, ScriptedTarget(), 60)
        assert tree.drafted == 0
        assert all(proposal.tree.drafted == 0 for proposal in proposals)
