"""Costs are learned from noisy steps, dips included."""

from __future__ import annotations

import pytest

from engines.budget.cost_model import CostModel, prior_ratio


def test_costs_are_learned_with_their_dips() -> None:
    costs = CostModel()
    assert costs.table(10)[8] == pytest.approx(costs.plain(10) * prior_ratio(8))
    for _ in range(15):
        costs.observe(1, 100, 0.010)
        costs.observe(4, 100, 0.012)
        costs.observe(8, 100, 0.030)
        costs.observe(16, 100, 0.025)
    table = costs.table(100)
    assert costs.measured(100)
    assert not costs.measured(5000)
    assert table[1] == pytest.approx(0.010)
    assert table[4] == pytest.approx(0.012, rel=0.1)
    assert table[8] > table[16] == pytest.approx(0.025, rel=0.1)
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


def test_a_moment_of_load_does_not_make_a_width_look_hopeless() -> None:
    costs = CostModel()
    for _ in range(5):
        costs.observe(1, 100, 0.010)
    costs.observe(3, 100, 0.200)
    assert costs.ratio(3) < 1.7 * prior_ratio(3)
    for _ in range(4):
        costs.observe(8, 100, 0.020)
    assert costs.ratio(3) < 1.5 * costs.ratio(8)


def test_a_busy_time_slows_all_widths_and_changes_no_ratio() -> None:
    """Else drafts would look hopeless for as long as the samples are kept."""
    costs = CostModel()
    for _ in range(15):
        costs.observe(1, 100, 0.010)
    for _ in range(6):
        for _ in range(4):
            costs.observe(1, 100, 0.022)
        costs.observe(4, 100, 0.055)
    assert costs.ratio(4) == pytest.approx(2.5, rel=0.15)


def test_a_truly_steep_curve_is_learned_in_a_few_samples() -> None:
    costs = CostModel()
    for _ in range(6):
        costs.observe(1, 100, 0.010)
        costs.observe(4, 100, 0.080)
    assert costs.ratio(4) > 6.0


def test_an_outlier_does_not_move_the_costs() -> None:
    costs = CostModel()
    for _ in range(9):
        costs.observe(1, 100, 0.010)
    costs.observe(1, 100, 5.0)
    assert costs.plain(100) == pytest.approx(0.010)


def test_a_plain_step_s_after_a_wider_one_does_not_pass_for_plain_decoding() -> None:
    costs, unmixed = CostModel(), CostModel()
    for model, after_wide in ((costs, 0.016), (unmixed, 0.010)):
        for _ in range(30):
            for seconds in (0.010, 0.010, 0.010):
                model.observe(1, 100, seconds)
            model.observe(4, 100, 0.020)
            model.observe(1, 100, after_wide)
    assert costs.plain(100) == pytest.approx(0.010)
    # What the wider step left behind is a cost of drafting.
    assert costs.ratio(4) == pytest.approx(unmixed.ratio(4) + 0.6, rel=0.1)
