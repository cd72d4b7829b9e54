"""Events cross threads in order, and drawing stays within its share of the processor."""

from __future__ import annotations

from threading import Thread

import pytest

from app.conversation.events import Event, Prefilling
from app.interface.chat.event_stream import (
    MAX_CPU_SHARE,
    MAX_PAUSE_S,
    MIN_PAUSE_S,
    EventQueue,
    RedrawThrottle,
)


def test_events_arrive_in_order_and_only_the_first_wakes() -> None:
    wakes: list[int] = []
    queue = EventQueue(lambda: wakes.append(1))
    for done in range(3):
        queue.put(Prefilling(done, 3))
    assert queue.take() == [Prefilling(0, 3), Prefilling(1, 3), Prefilling(2, 3)]
    assert queue.take() == []
    queue.put(Prefilling(3, 3))
    assert len(wakes) == 2


def test_nothing_is_lost_between_threads() -> None:
    queue = EventQueue(lambda: None)
    events = [Prefilling(done, 10_000) for done in range(10_000)]

    def put() -> None:
        for event in events:
            queue.put(event)

    thread = Thread(target=put)
    thread.start()
    taken: list[Event] = []
    while thread.is_alive():
        taken += queue.take()
    assert taken + queue.take() == events


def test_the_first_batch_is_drawn_at_once() -> None:
    assert RedrawThrottle().wait(clock=5.0, used=1.0) == 0.0


@pytest.mark.parametrize(
    ("cost", "pause"), [(0.0, MIN_PAUSE_S), (0.1 * MAX_CPU_SHARE, 0.1), (10.0, MAX_PAUSE_S)]
)
def test_an_expensive_batch_delays_the_next_one(cost: float, pause: float) -> None:
    throttle = RedrawThrottle()
    throttle.drew(clock=5.0, used=1.0)
    assert throttle.wait(clock=5.0, used=1.0 + cost) == pytest.approx(pause)
    assert throttle.wait(clock=5.0 + pause, used=1.0 + cost) == pytest.approx(0.0)
