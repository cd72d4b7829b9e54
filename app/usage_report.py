"""Statistics over weeks, read from disk: answers by day or week, models, draft models, stores.

The interface's statistics screen and `specchat stats` show the same report. Reading it is too slow
for the interface's thread when the history is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path

from app.engine.draft_model_versions import LearningHistory, halted_learning, learning_histories
from app.indexing.corpus_index import CREST_FILE, TOKENS_FILE
from app.locations import Locations
from app.models.discovery import current_name
from datastores.chats.history import HistoryReader
from datastores.chats.usage import (
    DayUsage,
    DraftModelUsage,
    Usage,
    daily_usage,
    draft_model_usage,
    total,
)

MAX_DAYS = 14
"""Longest time span that is shown by days; a longer one is shown by weeks."""
SHORT_FINGERPRINT = 8
"""Characters of the fingerprint that name a model whose name was not stored."""
MIN_POINT_POSITIONS = 60
"""Minimum positions that a point of the acceptance curve averages over; fewer are too noisy."""
MAX_POINTS = 120
"""Approximate maximum of points in that curve."""


@dataclass(frozen=True, slots=True)
class Period:
    """Usage from `start` up to the next period."""

    start: date
    usage: Usage


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of one model."""

    name: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class AcceptancePoint:
    """The average over consecutive answers drafted by one version of a draft model.

    Attributes:
        day: day of the last answer.
        version: 0 is the original draft model.
        positions: number of positions at which its guess was compared with the answer.
        acceptance: live acceptance, the share of positions at which the guess was right.
    """

    day: date
    version: int
    positions: int
    acceptance: float


@dataclass(frozen=True, slots=True)
class DraftModelReport:
    """The draft model of one target.

    Attributes:
        model: name of the target.
        learning: versions of the draft model, and the answers it can learn from.
        curve: live acceptance over time, oldest first.
    """

    model: str
    learning: LearningHistory
    curve: tuple[AcceptancePoint, ...]

    def live_acceptance(self, version: int) -> float | None:
        """Live acceptance of one version; None if it drafted no stored answer."""
        points = [point for point in self.curve if point.version == version]
        positions = sum(point.positions for point in points)
        right = sum(point.positions * point.acceptance for point in points)
        return right / positions if positions else None


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Disk use of one store."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Everything that is shown.

    Attributes:
        days: length of a period, 1 or 7.
        periods: oldest first, without gaps, up to today; empty if there are no answers.
        models: in descending order of tokens.
        draft_models: most recently used first.
        stores: those that exist.
        halted: one line for each draft model or head whose learning was stopped as fruitless.
    """

    days: int
    periods: tuple[Period, ...]
    models: tuple[ModelUsage, ...]
    total: Usage
    draft_models: tuple[DraftModelReport, ...]
    stores: tuple[StoreSize, ...]
    halted: tuple[str, ...] = ()


def read_report(history: HistoryReader, locations: Locations, today: date) -> UsageReport:
    """Read the report as of `today`.

    Raises:
        StoreError: the history or the versions of draft models cannot be read.
    """
    daily = daily_usage(history)
    days = period_days(daily, today)
    names = _names(daily)
    return UsageReport(
        days=days,
        periods=tuple(_periods(daily, days, today)),
        models=tuple(_models(daily, names)),
        total=total(day.usage for day in daily),
        draft_models=tuple(
            _draft_models(draft_model_usage(history), learning_histories(locations), names)
        ),
        stores=tuple(_stores(locations)),
        halted=tuple(
            f"{what} of {_name(target, names)}: {why}"
            for target, what, why in halted_learning(locations)
        ),
    )


def period_days(daily: Sequence[DayUsage], today: date) -> int:
    """1 while all answers are recent, else 7."""
    return 1 if not daily or (today - daily[0].day).days < MAX_DAYS else 7


def _periods(daily: Sequence[DayUsage], days: int, today: date) -> Iterator[Period]:
    """Periods of `days` days from the first answer to today; weeks start on Mondays."""
    if not daily:
        return
    start = daily[0].day
    if days > 1:
        start -= timedelta(start.weekday())
    # The clock may have been wrong: include answers dated in the future.
    last = max(today, daily[-1].day)
    while start <= last:
        end = start + timedelta(days)
        yield Period(start, total(day.usage for day in daily if start <= day.day < end))
        start = end


def _names(daily: Iterable[DayUsage]) -> dict[str, str]:
    names: dict[str, str] = {}
    for day in daily:
        names[day.model] = current_name(day.name) or names.get(day.model, "")
    return names


def _name(model: str, names: Mapping[str, str]) -> str:
    return names.get(model) or model[:SHORT_FINGERPRINT] or "unknown"


def _models(daily: Iterable[DayUsage], names: Mapping[str, str]) -> list[ModelUsage]:
    usages: dict[str, Usage] = {}
    for day in daily:
        usages.setdefault(day.model, Usage()).add(day.usage)
    found = [
        ModelUsage(_name(model, names), usage) for model, usage in usages.items() if usage.tokens
    ]
    return sorted(found, key=lambda model: -model.usage.tokens)


def _draft_models(
    usage: Sequence[DraftModelUsage],
    histories: Mapping[str, LearningHistory],
    names: Mapping[str, str],
) -> Iterator[DraftModelReport]:
    """Draft models that drafted or learned; answers are recorded for targets without one, too."""
    drafted = {one.model for one in usage}
    latest_first = [*dict.fromkeys(one.model for one in reversed(usage)), *histories]
    for model in dict.fromkeys(latest_first):
        curve = acceptance_curve([one for one in usage if one.model == model])
        learning = histories.get(model, LearningHistory())
        if learning.versions or model in drafted:
            yield DraftModelReport(_name(model, names), learning, tuple(curve))


def acceptance_curve(usage: Sequence[DraftModelUsage]) -> list[AcceptancePoint]:
    """`usage`, oldest first, averaged into at most about `MAX_POINTS` points."""
    least = max(MIN_POINT_POSITIONS, sum(one.compared for one in usage) // MAX_POINTS)
    points = []
    for version, answers in groupby(usage, key=lambda one: one.version):
        run, compared, matched = list(answers), 0, 0
        left = sum(one.compared for one in run)
        for one in run:
            compared, matched = compared + one.compared, matched + one.matched
            left -= one.compared
            # The last point includes a remainder that is too small for one of its own.
            if not left or (compared >= least and left >= least):
                points.append(AcceptancePoint(one.day, version, compared, matched / compared))
                compared = matched = 0
    return points


def _stores(locations: Locations) -> Iterator[StoreSize]:
    projections = locations.projections
    for name, files in (
        ("chats", _database(locations.history)),
        ("imported files", _database(locations.library)),
        ("passages", _database(locations.passages)),
        ("phrases", projections.glob(f"*/{CREST_FILE}*")),
        ("tokens", projections.glob(f"*/{TOKENS_FILE}*")),
        ("contexts", locations.states.glob("*")),
        ("answers to learn from", locations.replay.glob("*")),
        ("draft model versions", locations.draft_models.rglob("*")),
        ("saved chats", locations.chat_states.rglob("*")),
        ("models", locations.models.rglob("*")),
    ):
        size = sum(map(_size, files))
        if size:
            yield StoreSize(name, size)


def _database(path: Path) -> Iterator[Path]:
    return path.parent.glob(f"{path.name}*")


def _size(path: Path) -> int:
    """Bytes of a file; 0 if it is not a file or has been deleted since it was listed."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
