"""A head pays where it saves more passes than its own time and the wider passes cost."""

from __future__ import annotations

import numpy as np
import pytest

from engines.distillation.gate import AnswerMean, Quality, verdict
from engines.distillation.payoff import Payoff, best_gain
from engines.target import Floats

FLAT = [1.0, 1.0, *(1.0 + 0.02 * more for more in range(1, 6))]
"""As on a graphics card."""
STEEP = [1.0, 1.0, *(1.0 + 0.6 * more for more in range(1, 6))]
"""As of a quantised model on two cores."""


def drafted(right: float, sure: float, count: int = 1000) -> tuple[Floats, Floats]:
    """Chains of five whose first token is right in a share of places, of which the head knows a
    share `sure`; the others look alike. No second token is right."""
    hits = np.arange(count) < right * count
    knows = np.arange(count) < sure * right * count
    paths = np.where(knows, 0.9, 0.4)[:, None] * 0.5 ** np.arange(5)
    accepted = np.repeat(hits[:, None], 5, axis=1)
    # In no order: those that look alike are not sorted by what came of them.
    order = np.random.default_rng(1).permutation(count)
    return paths[order].astype(np.float32), accepted[order].astype(np.float32)


def test_what_is_right_at_half_of_the_places_pays_where_rows_are_cheap() -> None:
    # Every place is drafted behind: 0.5 tokens, less 0.02 for a row and 0.05 for the head.
    assert best_gain(*drafted(0.5, 0.0), 0.05, FLAT) == pytest.approx(0.43, abs=1e-6)
    # A further row costs more than half a token, and the head does not know where it is right.
    assert best_gain(*drafted(0.5, 0.0), 0.05, STEEP) <= 0.0


def test_what_knows_where_it_is_right_pays_there() -> None:
    # Drafted behind a quarter of the places, consulted at all of them.
    assert best_gain(*drafted(0.5, 0.5), 0.05, STEEP) == pytest.approx(0.25 * 0.4 - 0.05, abs=1e-6)
    assert best_gain(*drafted(0.5, 0.5), 0.15, STEEP) < 0.0


def test_longer_chains_count_where_only_they_pay() -> None:
    paths, accepted = np.ones((10, 5), np.float32), np.tile(np.arange(1.0, 6.0), (10, 1))
    dip = [1.0, 1.0, 2.5, 2.5, 2.5, 2.5, 2.5]
    gain = best_gain(paths, accepted.astype(np.float32), 0.1, dip)
    assert gain == pytest.approx(5 - 1.5 - 5 * 0.1)


def test_the_gate_refuses_what_only_costs() -> None:
    nothing, better = AnswerMean((0.0,), (100.0,)), AnswerMean((40.0,), (100.0,))
    before = Quality(nothing, nothing, None)
    for gain, refused in ((0.2, False), (0.0, True), (-0.1, True)):
        after = Quality(better, better, None, Payoff(gain, 0.0009, 0.0085))
        reason = verdict(before, after, None)
        assert bool(reason) == refused
        if refused:
            assert reason == (
                "it would cost more time than it saves: 0.90 ms per drafted token, 8.5 ms"
                " per token without drafts, and 40% of new questions' tokens correct"
            )
    assert verdict(before, Quality(better, better, None), None) == ""
