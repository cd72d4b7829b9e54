"""Workers run coroutines with their arguments, and leave none unawaited."""

from __future__ import annotations

import gc

import pytest

from app.interface.workers import start_worker
from tests.app.interface.conftest import Make, ready, until


async def test_the_last_of_a_group_runs_and_the_others_leave_nothing(
    stage: Make, recwarn: pytest.WarningsRecorder
) -> None:
    made, seen = stage(), list[int]()

    async def see(number: int) -> None:
        seen.append(number)

    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        for number in range(3):
            worker = start_worker(made.app, see, number, group="numbers", exclusive=True)
        await until(pilot, lambda: worker.is_finished)
    gc.collect()
    assert seen == [2]
    assert not [one for one in recwarn if "never awaited" in str(one.message)]
