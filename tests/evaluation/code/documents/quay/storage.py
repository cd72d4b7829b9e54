"""The SQLite file: readings, meters, bills, and what has been sent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from .parsing import TideReading

BUSY_MS = 7500
"""The backup holds the lock for up to four seconds."""


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection with write-ahead logging and foreign keys, committed at the end."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        with connection:
            yield connection
    finally:
        connection.close()


def keep_readings(connection: sqlite3.Connection, readings: Iterable[TideReading]) -> int:
    """Store readings; one that is there already is left alone. Returns how many were added."""
    before = connection.total_changes
    connection.executemany(
        "INSERT OR IGNORE INTO reading (gauge, at, metres) VALUES (?, ?, ?)",
        ((one.gauge, int(one.at.timestamp()), one.metres) for one in readings),
    )
    return connection.total_changes - before


def unsent(connection: sqlite3.Connection, limit: int) -> list[tuple[int, str, int, float]]:
    """The oldest readings that the county has not confirmed: id, gauge, time, height."""
    return connection.execute(
        "SELECT id, gauge, at, metres FROM reading WHERE receipt IS NULL ORDER BY at LIMIT ?",
        (limit,),
    ).fetchall()


def confirm(connection: sqlite3.Connection, ids: Iterable[int], receipt: str) -> None:
    """Note the county's receipt on readings, so that they are not sent again."""
    connection.executemany(
        "UPDATE reading SET receipt = ? WHERE id = ?", ((receipt, one) for one in ids)
    )


def thin_out(connection: sqlite3.Connection, before: datetime) -> int:
    """Keep one reading an hour of those older than `before`; returns how many were deleted.

    High and low waters are kept whatever their minute: they are in `extreme`.
    """
    cursor = connection.execute(
        """
        DELETE FROM reading
        WHERE at < ? AND at % 3600 != 0 AND id NOT IN (SELECT reading FROM extreme)
        """,
        (int(before.timestamp()),),
    )
    return cursor.rowcount
