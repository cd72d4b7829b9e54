"""The thread tuner finds the count with the shortest passes, also when the load changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from engines.llama.threads import ThreadTuner, ThreadTuners

QUIET = {1: 0.60e-3, 2: 0.39e-3, 4: 0.27e-3}
BUSY = {1: 0.70e-3, 2: 14e-3, 4: 120e-3}


def run(tuner: ThreadTuner, passes: int, cost: Callable[[int], float]) -> Counter[int]:
    """How often each count was used."""
    used: Counter[int] = Counter()
    for _ in range(passes):
        threads = tuner.threads
        used[threads] += 1
        assert tuner.observe(1, cost(threads)) == tuner.threads
    return used


def test_a_quiet_machine_keeps_all_threads() -> None:
    used = run(ThreadTuner(4), 2000, QUIET.__getitem__)
    assert used[4] > 1950


def test_a_busy_machine_gets_one_thread_and_all_when_quiet_again() -> None:
    tuner = ThreadTuner(4)
    run(tuner, 500, QUIET.__getitem__)
    busy = run(tuner, 500, BUSY.__getitem__)
    assert busy[1] > 450
    run(tuner, 60_000, QUIET.__getitem__)
    assert run(tuner, 100, QUIET.__getitem__)[4] > 80


def test_a_machine_that_is_busy_from_the_start_is_noticed_soon() -> None:
    used = run(ThreadTuner(4), 60, BUSY.__getitem__)
    assert used[4] < 12
    assert used[1] > 30


def test_long_passes_and_a_fixed_count_change_nothing() -> None:
    tuner = ThreadTuner(4)
    for _ in range(100):
        tuner.observe(512, 1.0)
    assert tuner.threads == 4
    fixed = ThreadTuner(3, learning=False)
    run(fixed, 100, lambda _threads: 0.5)
    assert fixed.threads == 3


def test_wide_passes_are_compared_with_wide_passes() -> None:
    widths, tuner = random.Random(1), ThreadTuner(4)
    plain = {1: 10.5e-3, 2: 9.0e-3, 4: 7.8e-3}
    ratios = {1: 1.0, 4: 1.2, 8: 1.4}
    used: Counter[int] = Counter()
    for _ in range(4000):
        rows, threads = widths.choice((1, 4, 8)), tuner.threads
        used[threads] += 1
        tuner.observe(rows, plain[threads] * ratios[rows])
    assert used[4] > 3900


def test_the_first_pass_of_a_width_decides_nothing() -> None:
    tuner, used = ThreadTuner(2), Counter[int]()
    for rows in range(2, 12):
        for number in range(6):
            used[tuner.threads] += 1
            tuner.observe(rows, {1: 50e-3, 2: 27e-3}[tuner.threads] + 30e-3 * (number == 0))
    assert used[1] < 8


def test_passes_of_one_row_and_of_several_learn_apart() -> None:
    tuners = ThreadTuners(2)
    costs = {(1, 1): 10e-3, (1, 2): 12e-3, (8, 1): 50e-3, (8, 2): 27e-3}
    for rows in 200 * (1, 8):
        before, threads = tuners.threads, tuners.threads[rows > 1]
        assert tuners.observe(rows, costs[rows, threads]) == (tuners.threads != before)
    chosen = Counter[tuple[int, int]]()
    for rows in 50 * (1, 8):
        chosen[tuners.threads] += 1
        tuners.observe(rows, costs[rows, tuners.threads[rows > 1]])
    assert chosen[1, 2] > 85
