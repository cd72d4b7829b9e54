"""The statistics screen is opened by key, read in a thread, and laid out again after a resize."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from app import usage_report
from app.interface.statistics import statistics_screen
from app.interface.statistics.page import NOTHING_YET
from app.interface.statistics.statistics_screen import StatisticsScreen
from app.locations import locate
from datastores.chats.history import History
from datastores.chats.usage import DRAFT_MODEL_KEY
from datastores.errors import StoreError
from tests.app.interface.conftest import Act, Compare, Make, Stage, ready, until
from tests.app.test_usage_report import EARLIER, FIGURES, TODAY, answered, learn


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the date and the sizes on disk."""

    class Today(date):
        @classmethod
        def today(cls) -> Today:
            return cls(TODAY.year, TODAY.month, TODAY.day)

    monkeypatch.setattr(statistics_screen, "date", Today)
    stores = [
        usage_report.StoreSize("chats", 4_300_000),
        usage_report.StoreSize("imported files", 81_000_000),
        usage_report.StoreSize("contexts", 12_000_000),
    ]
    monkeypatch.setattr(usage_report, "_stores", lambda locations: iter(stores))


def fill(history: History) -> None:
    """Eleven weeks of learning, and of answers that gain more and more from drafts."""
    measured = ((0.806, 0.824), (0.824, 0.851))
    learned = [
        {"acceptance_before": before, "acceptance": after, "steps": 96.0}
        for before, after in measured
    ]
    learn(locate(history.store.path.parent), "f" * 16, *learned)
    for week in range(11):
        day = TODAY - timedelta(7 * (10 - week))
        chats, prompt = 8 * week, 20
        steps = 100 - chats * 0.7 - prompt * 0.5
        figures: dict[str, Any] = {
            **(EARLIER if week < 2 else FIGURES),
            "steps": round(steps),
            "decode_seconds": steps / 25,
            "by_origin": {"chats": chats, "prompt": prompt, "dense": week},
        }
        if week >= 2:
            figures["plain_seconds"] = 4.2
            figures["drafted_by_origin"] = {"chats": chats * 2, "prompt": 25}
            figures["draft_model_compared"] = 120
            figures["draft_model_matched"] = 84 + week * 3 - 6 * (week % 3)
            figures[DRAFT_MODEL_KEY] = (week - 2) // 3
        for _ in range(1 + week % 3):
            answered(history, day, figures)
    answered(history, TODAY, {**FIGURES, "model_name": "Qwen3-8B Q4_K_M"}, "a" * 16)


def opened(stage: Stage) -> Act:
    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, stage)
        await pilot.press("f10")
        await until(pilot, lambda: "Reading" not in text(stage))
        await pilot.pause()

    return act


def text(stage: Stage) -> str:
    screen = stage.app.screen
    if not isinstance(screen, StatisticsScreen):
        return "Reading"
    return str(screen.query_one(Static).content)


@pytest.mark.parametrize("size", [(80, 24), (140, 50)])
def test_statistics(
    snap_compare: Compare, stage: Make, history: History, size: tuple[int, int]
) -> None:
    fill(history)
    made = stage()
    assert snap_compare(made.app, terminal_size=size, run_before=opened(made))


@pytest.mark.parametrize("size", [(80, 24)])
def test_statistics_in_light(
    snap_compare: Compare, stage: Make, history: History, size: tuple[int, int]
) -> None:
    fill(history)
    made = stage(theme="specchat-light")

    async def act(pilot: Pilot[None]) -> None:
        await opened(made)(pilot)
        await pilot.press("pagedown")
        await pilot.wait_for_scheduled_animations()

    assert snap_compare(made.app, terminal_size=size, run_before=act)


async def test_the_report_is_read_on_another_thread_and_closed_by_a_key(
    stage: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    real = usage_report.read_report

    def read(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(statistics_screen, "read_report", read)
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await opened(made)(pilot)
        assert NOTHING_YET in text(made)
        assert threads[0] is not threading.main_thread()
        await pilot.press("escape")
        await pilot.pause()
        assert made.app.screen is made.app.chat_screen


async def test_every_line_fits_after_a_resize(stage: Make, history: History) -> None:
    fill(history)
    made = stage()
    async with made.app.run_test(size=(140, 50)) as pilot:
        await opened(made)(pilot)
        for width in (40, 80, 110):
            await pilot.resize_terminal(width, 24)
            await until(
                pilot,
                lambda: max(map(len, text(made).splitlines())) <= width,  # noqa: B023
            )


async def test_an_unreadable_history_is_reported(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise StoreError("the history is gone: [b]restore[/b] it")

    monkeypatch.setattr(statistics_screen, "read_report", fail)
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await opened(made)(pilot)
        assert text(made) == "the history is gone: [b]restore[/b] it"
