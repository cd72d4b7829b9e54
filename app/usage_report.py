"""Statistics over weeks, from what is on disk: answers by day or week, models, draft models,
stores.

Owns how days are summed into periods and answers into a curve, and which files make up a store. The
interface's statistics screen and `specchat stats` show the same report. Reading it takes a moment
in a long history: not for the interface's thread.
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
"""Time span up to which each day is a period of its own; a longer one is shown by weeks."""
SHORT_FINGERPRINT = 8
"""Characters of a fingerprint that stand for a model whose name was not stored."""
MIN_POINT_POSITIONS = 60
"""Positions that a point of the acceptance curve is averaged over; fewer say little."""
MAX_POINTS = 120
"""Points of that curve; more answers are averaged over in each."""


@dataclass(frozen=True, slots=True)
class Period:
    """What was answered in the days from `start` on, up to the next period."""

    start: date
    usage: Usage


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model answered."""

    name: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class AcceptancePoint:
    """Answers in a row, drafted for by the same version of a draft model.

    Attributes:
        day: of the last of them.
        version: 0 is the original draft model.
        positions: that its drafts were compared at.
        acceptance: live acceptance, the share of them at which it was right.
    """

    day: date
    version: int
    positions: int
    acceptance: float


@dataclass(frozen=True, slots=True)
class DraftModelReport:
    """The draft model that drafts for one model.

    Attributes:
        model: name of the model.
        learning: its versions, and the answers it can learn from.
        curve: its live acceptance over time, oldest first.
    """

    model: str
    learning: LearningHistory
    curve: tuple[AcceptancePoint, ...]

    def live_acceptance(self, version: int) -> float | None:
        """The live acceptance of one version; None if it drafted for no answer that is kept."""
        points = [point for point in self.curve if point.version == version]
        positions = sum(point.positions for point in points)
        right = sum(point.positions * point.acceptance for point in points)
        return right / positions if positions else None


@dataclass(frozen=True, slots=True)
class StoreSize:
    """A store, and the bytes of its files."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Everything that is shown.

    Attributes:
        days: length of a period: 1 or 7.
        periods: without gaps, oldest first, up to today; empty without an answer.
        models: by tokens, most first.
        draft_models: the one that drafted last first.
        halted: what stopped to learn since it brought nothing, a line each.
        stores: those that exist.
    """

    days: int
    periods: tuple[Period, ...]
    models: tuple[ModelUsage, ...]
    total: Usage
    draft_models: tuple[DraftModelReport, ...]
    stores: tuple[StoreSize, ...]
    halted: tuple[str, ...] = ()


def read_report(history: HistoryReader, locations: Locations, today: date) -> UsageReport:
    """The report as of `today`.

    Raises:
        StoreError: the history cannot be read, or what the draft models learned.
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
    # The clock may have been wrong: an answer of tomorrow is not left out.
    last = max(today, daily[-1].day)
    while start <= last:
        end = start + timedelta(days)
        yield Period(start, total(day.usage for day in daily if start <= day.day < end))
        start = end


def _names(daily: Iterable[DayUsage]) -> dict[str, str]:
    """The names of models by fingerprint, as they were stored last."""
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
    """Draft models that drafted or learned; answers are recorded for models without one, too."""
    drafted = {one.model for one in usage}
    latest_first = [*dict.fromkeys(one.model for one in reversed(usage)), *histories]
    for model in dict.fromkeys(latest_first):
        curve = acceptance_curve([one for one in usage if one.model == model])
        learning = histories.get(model, LearningHistory())
        if learning.versions or model in drafted:
            yield DraftModelReport(_name(model, names), learning, tuple(curve))


def acceptance_curve(usage: Sequence[DraftModelUsage]) -> list[AcceptancePoint]:
    """The answers of `usage`, oldest first, averaged over as many as make a point."""
    least = max(MIN_POINT_POSITIONS, sum(one.compared for one in usage) // MAX_POINTS)
    points = []
    for version, answers in groupby(usage, key=lambda one: one.version):
        run, compared, matched = list(answers), 0, 0
        left = sum(one.compared for one in run)
        for one in run:
            compared, matched = compared + one.compared, matched + one.matched
            left -= one.compared
            # The last point takes what would be too little for another.
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
    """A database with its write-ahead log."""
    return path.parent.glob(f"{path.name}*")


def _size(path: Path) -> int:
    """Bytes of a file; 0 for what is none, or is gone since it was listed."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
