"""Statistics over weeks, from what is on disk: answers by day or week, models, and stores.

Owns how days are summed into periods, and which files make up a store. The interface's statistics
screen and `specchat stats` show the same report. Reading it takes a moment in a long history: not
for the interface's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from app.indexing.corpus_index import CREST_FILE, TOKENS_FILE
from app.locations import Locations
from datastores.chats.history import HistoryReader
from datastores.chats.usage import DayUsage, Usage, daily_usage, total

MAX_DAYS = 14
"""Time span up to which each day is a period of its own; a longer one is shown by weeks."""
SHORT_FINGERPRINT = 8
"""Characters of a fingerprint that stand for a model whose name was not stored."""


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
        stores: those that exist.
    """

    days: int
    periods: tuple[Period, ...]
    models: tuple[ModelUsage, ...]
    total: Usage
    stores: tuple[StoreSize, ...]


def read_report(history: HistoryReader, locations: Locations, today: date) -> UsageReport:
    """The report as of `today`.

    Raises:
        StoreError: the history cannot be read.
    """
    daily = daily_usage(history)
    days = period_days(daily, today)
    return UsageReport(
        days=days,
        periods=tuple(_periods(daily, days, today)),
        models=tuple(_models(daily)),
        total=total(day.usage for day in daily),
        stores=tuple(_stores(locations)),
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


def _models(daily: Iterable[DayUsage]) -> list[ModelUsage]:
    """By fingerprint, under the name that was stored last."""
    names: dict[str, str] = {}
    usages: dict[str, Usage] = {}
    for day in daily:
        usages.setdefault(day.model, Usage()).add(day.usage)
        names[day.model] = day.name or names.get(day.model, "")
    found = [
        ModelUsage(names[model] or model[:SHORT_FINGERPRINT] or "unknown", usage)
        for model, usage in usages.items()
        if usage.tokens
    ]
    return sorted(found, key=lambda model: -model.usage.tokens)


def _stores(locations: Locations) -> Iterator[StoreSize]:
    projections = locations.projections
    for name, files in (
        ("chats", _database(locations.history)),
        ("imported files", _database(locations.library)),
        ("passages", _database(locations.passages)),
        ("phrases", projections.glob(f"*/{CREST_FILE}*")),
        ("tokens", projections.glob(f"*/{TOKENS_FILE}*")),
        ("contexts", locations.states.glob("*")),
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
