"""Everything that is in a database, to compare it with another one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def rows_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables, in an order of their own."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
            for (name,) in tables.fetchall()
        }
