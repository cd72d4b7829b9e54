"""The thread tuner finds the fastest count, also when the load changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from engines.llama.threads import ThreadTuner, ThreadTuners

QUIET = {1: 0.60e-3, 2: 0.39e-3, 4: 0.27e-3}
BUSY = {1: 0.70e-3, 2: 14e-3, 4: 120e-3}


def run(
    tuner: ThreadTuner,
    passes: int,
    cost: Callable[[int], float],
    *,
    share: float = 1.0,
    widths: Sequence[int] = (1,),
) -> Counter[int]:
    """How often each count was used, if threads get a `share` of their CPU time."""
    used: Counter[int] = Counter()
    for number in range(passes):
        rows = widths[number % len(widths)]
        threads = tuner.choose(rows)
        used[threads] += 1
        tuner.observe(rows, cost(threads), share * threads * cost(threads))
    return used


def test_a_quiet_machine_keeps_all_threads() -> None:
    used = run(ThreadTuner(4), 2000, QUIET.__getitem__)
    assert used[4] > 1980


def test_a_busy_machine_gets_one_thread_and_all_when_quiet_again() -> None:
    tuner = ThreadTuner(4)
    run(tuner, 500, QUIET.__getitem__)
    busy = run(tuner, 500, BUSY.__getitem__, share=0.3)
    assert busy[1] > 450
    run(tuner, 60_000, QUIET.__getitem__)
    assert run(tuner, 100, QUIET.__getitem__)[4] > 80


def test_a_machine_that_is_busy_from_the_start_is_noticed_soon() -> None:
    used = run(ThreadTuner(4), 60, BUSY.__getitem__, share=0.3)
    assert used[4] < 12
    assert used[1] > 30


def test_fewer_threads_are_tried_although_no_core_was_denied() -> None:
    """Some passes are bound by memory, which one thread can read as fast as two."""
    assert run(ThreadTuner(2), 1000, {1: 10e-3, 2: 12e-3}.__getitem__)[1] > 800


def test_long_passes_and_a_fixed_count_change_nothing() -> None:
    tuner = ThreadTuner(4)
    assert run(tuner, 100, lambda _threads: 1.0, share=0.1, widths=(512,))[4] == 100
    fixed = ThreadTuner(3, learning=False)
    assert run(fixed, 100, lambda _threads: 0.5, share=0.1)[3] == 100


def test_wide_passes_are_compared_with_wide_passes() -> None:
    widths, tuner = random.Random(1), ThreadTuner(4)
    plain = {1: 10.5e-3, 2: 9.0e-3, 4: 7.8e-3}
    ratios = {1: 1.0, 4: 1.2, 8: 1.4}
    used: Counter[int] = Counter()
    for _ in range(4000):
        rows = widths.choice((1, 4, 8))
        threads = tuner.choose(rows)
        used[threads] += 1
        seconds = plain[threads] * ratios[rows]
        tuner.observe(rows, seconds, threads * seconds)
    assert used[4] > 3950


def test_widths_seen_for_the_first_time_get_the_current_count() -> None:
    """A trial of a width without a mean would have nothing to compare with."""
    tuner = ThreadTuner(2)
    widths = [2, 3, 4, 5, 6, 8, 12, 16]
    quiet = {1: 50e-3, 2: 27e-3}
    assert run(tuner, 200, quiet.__getitem__, widths=widths)[1] < 4
    assert [tuner.choose(rows) for rows in (7, 9, 10)] == [2, 2, 2]


def test_the_first_pass_of_a_width_decides_nothing() -> None:
    tuner, used = ThreadTuner(2), Counter[int]()
    for rows in range(2, 12):
        for number in range(6):
            threads = tuner.choose(rows)
            used[threads] += 1
            seconds = {1: 50e-3, 2: 27e-3}[threads] + 30e-3 * (number == 0)
            tuner.observe(rows, seconds, threads * seconds)
    assert used[1] < 8


def test_passes_of_one_row_and_of_several_learn_apart() -> None:
    tuners = ThreadTuners(2)
    costs = {(1, 1): 10e-3, (1, 2): 12e-3, (8, 1): 50e-3, (8, 2): 27e-3}
    chosen = {1: Counter[int](), 8: Counter[int]()}
    for rows in 1000 * (1, 8):
        threads = tuners.choose(rows)
        chosen[rows][threads] += 1
        tuners.observe(rows, costs[rows, threads], threads * costs[rows, threads])
    assert chosen[1][1] > 800
    assert chosen[8][2] > 950
