"""Usage: the figures stored with answers, summed by day and model.

Deleted chats leave no figures behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any

from datastores.chats.history import HistoryReader

DRAFT_MODEL_KEY = "draft_model_version"
"""The key of the draft model's version in an answer's stored figures; 0 for the original one."""
MODEL_KEY = "model_name"
"""The key of the model's name in an answer's stored figures; `model` is its fingerprint."""

_ANSWERS = """
    SELECT id, date(created, 'unixepoch', 'localtime') AS day, model,
        CASE WHEN json_valid(statistics) THEN statistics ELSE '{}' END AS figures
    FROM messages
    WHERE role = 'assistant' AND finish <> ''
        AND chat IN (SELECT id FROM chats WHERE origin = '')
        AND date(created, 'unixepoch') IS NOT NULL
"""
"""Finished answers; a restored file may have figures that are not JSON to SQLite."""

_DAYS = f"""
    SELECT day, model, max(name) AS name, count(*) AS answers,
        sum(tokens) AS tokens, sum(steps) AS steps, sum(step_tokens) AS step_tokens,
        sum(seconds) AS seconds,
        sum(CASE WHEN plain > 0 THEN step_tokens ELSE 0 END) AS compared_tokens,
        sum(CASE WHEN plain > 0 THEN seconds ELSE 0 END) AS compared_seconds,
        sum(plain) AS plain_seconds
    FROM (
        SELECT day, model,
            coalesce(json_extract(figures, '$.{MODEL_KEY}'), '') AS name,
            coalesce(json_extract(figures, '$.tokens'), 0) AS tokens,
            coalesce(json_extract(figures, '$.steps'), 0) AS steps,
            coalesce(json_extract(figures, '$.step_tokens'), 0) AS step_tokens,
            coalesce(json_extract(figures, '$.decode_seconds'), 0.0) AS seconds,
            coalesce(json_extract(figures, '$.plain_seconds'), 0.0) AS plain
        FROM ({_ANSWERS})
    )
    GROUP BY day, model ORDER BY day, model
"""

_ORIGINS = f"""
    SELECT day, model, key AS origin, sum(value) AS tokens
    FROM ({_ANSWERS}), json_each(figures, :path)
    WHERE key IS NOT NULL AND json_type(figures, :stored) IS NOT NULL
    GROUP BY day, model, origin
"""
_ORIGIN_TOTALS = {
    "by_origin": ("by_origin", "by_origin"),
    "drafted_by_origin": ("drafted_by_origin", "drafted_by_origin"),
    "matched_by_origin": ("by_origin", "drafted_by_origin"),
}
"""Total by origin → the stored figure it sums, and another one that answers must have."""


_DRAFT_MODEL = f"""
    SELECT day, model,
        coalesce(json_extract(figures, '$.{DRAFT_MODEL_KEY}'), 0) AS version,
        json_extract(figures, '$.draft_model_compared') AS compared,
        json_extract(figures, '$.draft_model_matched') AS matched
    FROM ({_ANSWERS})
    WHERE json_type(figures, '$.draft_model_compared') = 'integer'
        AND json_type(figures, '$.draft_model_matched') = 'integer'
        AND json_extract(figures, '$.draft_model_compared') > 0
    ORDER BY id
"""


@dataclass(slots=True)
class Usage:
    """Totals over answers.

    Attributes:
        steps: forward passes that emitted tokens.
        step_tokens: tokens emitted by them.
        seconds: time of those steps.
        compared_tokens, compared_seconds: totals of the answers whose `plain_seconds` is known,
            which earlier versions did not store.
        plain_seconds: time that those answers would have taken without drafts.
        by_origin: tokens credited to each origin.
        drafted_by_origin: draft tokens of each origin, as far as they were stored.
        matched_by_origin: credited tokens of the same answers.
    """

    answers: int = 0
    tokens: int = 0
    steps: int = 0
    step_tokens: int = 0
    seconds: float = 0.0
    compared_tokens: int = 0
    compared_seconds: float = 0.0
    plain_seconds: float = 0.0
    by_origin: dict[str, int] = field(default_factory=dict)
    drafted_by_origin: dict[str, int] = field(default_factory=dict)
    matched_by_origin: dict[str, int] = field(default_factory=dict)

    def add(self, other: Usage) -> None:
        for entry in fields(Usage):
            mine, added = getattr(self, entry.name), getattr(other, entry.name)
            if isinstance(mine, dict):
                for origin, tokens in added.items():
                    mine[origin] = mine.get(origin, 0) + tokens
            else:
                setattr(self, entry.name, mine + added)

    @property
    def saved_steps(self) -> int:
        """Tokens that needed no step of their own."""
        return self.step_tokens - self.steps

    @property
    def saved_seconds(self) -> float:
        """Time that drafts saved in the compared answers; negative if they cost time."""
        return self.plain_seconds - self.compared_seconds

    @property
    def speed(self) -> float:
        """Tokens per second; 0 without steps."""
        return self.step_tokens / self.seconds if self.seconds else 0.0

    @property
    def plain_speed(self) -> float:
        """Tokens per second without drafts, in the compared answers; 0 without any."""
        return self.compared_tokens / self.plain_seconds if self.plain_seconds else 0.0

    @property
    def ratio(self) -> float:
        """Speed relative to decoding without drafts, in the compared answers; 0 without any."""
        return self.plain_seconds / self.compared_seconds if self.compared_seconds else 0.0

    def share(self, origin: str) -> float:
        """Share of the tokens that came from `origin`."""
        return self.by_origin.get(origin, 0) / self.tokens if self.tokens else 0.0

    def accepted(self, origin: str) -> float | None:
        """Share of an origin's draft tokens that was accepted; None if it is unknown."""
        drafted = self.drafted_by_origin.get(origin, 0)
        return self.matched_by_origin.get(origin, 0) / drafted if drafted else None


@dataclass(slots=True)
class DayUsage:
    """Usage of one model on one day.

    Attributes:
        model: fingerprint; empty if none was stored.
        name: the model's name then; empty if none was stored.
    """

    day: date
    model: str
    name: str
    usage: Usage


def daily_usage(history: HistoryReader) -> list[DayUsage]:
    """Usage by day and model, oldest first.

    It parses the figures of every answer, which takes some 0.1 ms each.
    Raises:
        StoreError: the history cannot be read.
    """
    days = {(row["day"], row["model"]): _day(row) for row in history.store.rows(_DAYS)}
    for name, (summed, required) in _ORIGIN_TOTALS.items():
        paths = {"path": f"$.{summed}", "stored": f"$.{required}"}
        for row in history.store.rows(_ORIGINS, paths):
            # An answer may have been finished since the first query.
            found = days.get((row["day"], row["model"]))
            if found is not None:
                getattr(found.usage, name)[str(row["origin"])] = int(row["tokens"] or 0)
    return list(days.values())


@dataclass(frozen=True, slots=True)
class DraftModelUsage:
    """The draft model's figures in one answer.

    Attributes:
        model: fingerprint of the target.
        version: the draft model's; 0 for the original one.
        compared, matched: as in `app.conversation.statistics.Statistics`.
    """

    day: date
    model: str
    version: int
    compared: int
    matched: int


def draft_model_usage(history: HistoryReader) -> list[DraftModelUsage]:
    """Every finished answer that a draft model drafted for, oldest first.

    Raises:
        StoreError: the history cannot be read.
    """
    return [
        DraftModelUsage(
            date.fromisoformat(row["day"]),
            str(row["model"]),
            row["version"] if isinstance(row["version"], int) else 0,
            int(row["compared"]),
            min(int(row["matched"]), int(row["compared"])),
        )
        for row in history.store.rows(_DRAFT_MODEL)
    ]


def total(usages: Iterable[Usage]) -> Usage:
    """The sum of `usages`."""
    summed = Usage()
    for usage in usages:
        summed.add(usage)
    return summed


def _day(row: dict[str, Any]) -> DayUsage:
    counts = {entry.name: row[entry.name] for entry in fields(Usage) if entry.name in row}
    return DayUsage(
        date.fromisoformat(row["day"]), str(row["model"]), str(row["name"]), Usage(**counts)
    )
