"""Reads what can still be read of a damaged database, row by row.

It works on a copy, so the damaged file is unchanged. Every row is looked up by its id, in ascending
order: a damaged page costs the rows on it, but none after it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datastores.errors import InputError
from datastores.storage.integrity import LOGS

MAGIC = b"SQLite format 3\0"
"""The first bytes of every SQLite file."""
HEADER_BYTES = 100
"""Bytes of the header on the first page."""
PAGE_BYTES = 4096
"""SQLite's default page size, which every database here has."""
COPIED_BYTES = 1 << 20
"""Bytes copied at a time."""
MAX_GAP = 100_000
"""Consecutive ids without a row that end a table whose largest id is damaged."""


def is_database(path: Path) -> bool:
    """Whether the file starts like a database, or is named like a quarantined one.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC or ".db.corrupt-" in path.name


class DamagedDatabase:
    """A copy of a damaged database, open within `open_damaged`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The readable rows of `table`, whose ids count from 1."""
        last, number, gap = self._last_id(table), 0, 0
        # NOT INDEXED: rows are found by id alone, without indexes, which may be damaged.
        sql = f"SELECT * FROM {table} NOT INDEXED WHERE id = ?"
        while number != last and gap < MAX_GAP:
            number, gap = number + 1, gap + 1
            try:
                row = self._connection.execute(sql, (number,)).fetchone()
            except (sqlite3.DatabaseError, UnicodeDecodeError):
                continue  # damaged; the next one may not be
            if row is not None:
                gap = 0
                yield dict(row)

    def _last_id(self, table: str) -> int | None:
        """The largest id that `table` ever had; None if that cannot be read."""
        try:
            sql = "SELECT seq FROM sqlite_sequence WHERE name = ?"
            row = self._connection.execute(sql, (table,)).fetchone()
            return int(row["seq"])
        except (sqlite3.DatabaseError, ValueError, TypeError):
            return None


@contextmanager
def open_damaged(path: Path) -> Iterator[DamagedDatabase]:
    """Open a copy of a damaged database.

    Raises:
        InputError: nothing can be read.
        OSError: it cannot be copied.
    """
    with TemporaryDirectory(prefix="specchat-") as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", *LOGS):
            part = path.with_name(path.name + suffix)
            if part.exists():
                _copy(part, copy.with_name(copy.name + suffix))
        try:
            _mend_header(copy)
            with closing(sqlite3.connect(copy)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = lambda text: text.decode("utf-8", "replace")
                # Otherwise a damaged index or trigger makes every table unreadable.
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                yield DamagedDatabase(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise InputError(f"nothing of it can be read: {error}") from error


def _copy(source: Path, copy: Path) -> None:
    """Copy a file sparsely: its holes take neither time nor space."""
    with source.open("rb") as old, copy.open("xb") as new:
        if hasattr(os, "SEEK_DATA"):
            for start, stop in _filled(old.fileno()):
                old.seek(start)
                new.seek(start)
                while start < stop and (block := old.read(min(COPIED_BYTES, stop - start))):
                    new.write(block)
                    start += len(block)
            new.truncate(source.stat().st_size)
        else:
            shutil.copyfileobj(old, new)


def _filled(file: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that are not holes."""
    start, size = 0, os.fstat(file).st_size
    while start < size:
        try:
            start = os.lseek(file, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # no more data
        stop = os.lseek(file, start, os.SEEK_HOLE)
        yield start, stop
        start = stop


def _mend_header(copy: Path) -> None:
    """Replace a damaged header; an intact one is the same in every database here."""
    with closing(sqlite3.connect(copy)) as connection:
        try:
            connection.execute("PRAGMA schema_version").fetchone()
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            pass
    header = _sound_header(copy.with_name("sound.db"), copy.stat().st_size)
    with copy.open("r+b") as file:
        file.write(header)


def _sound_header(sound: Path, size: int) -> bytes:
    """The header of a database of `size` bytes."""
    with closing(sqlite3.connect(sound)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("CREATE TABLE sound (id)")
    header = bytearray(sound.read_bytes()[:HEADER_BYTES])
    header[28:32] = (size // PAGE_BYTES).to_bytes(4, "big")  # the number of pages
    return bytes(header)
