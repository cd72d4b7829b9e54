"""The remaining time excludes pauses, and starts over with another job."""

from __future__ import annotations

import pytest

from app.remaining_time import RemainingTime


def test_the_time_left_is_known_after_some_seconds_of_work() -> None:
    remaining = RemainingTime()
    assert remaining.update(0, 100, 0.0) is None
    assert remaining.update(10, 100, 2.0) is None
    assert remaining.update(20, 100, 4.0) == pytest.approx(16.0)
    assert remaining.update(20, 100, 1000.0) == pytest.approx(16.0), "a question came between"
    assert remaining.update(25, 100, 1001.0) == pytest.approx(15.0)
    assert remaining.update(0, 100, 1002.0) is None, "another job"


def test_a_change_of_speed_is_followed() -> None:
    remaining = RemainingTime()
    for second in range(60):
        remaining.update(second, 10_000, second)
    left = None
    for second in range(300):
        left = remaining.update(59 + 10 * second, 10_000, 60 + second)
    assert left is not None
    assert left < 1.2 * (10_000 - 59 - 2990) / 10
