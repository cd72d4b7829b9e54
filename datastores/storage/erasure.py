"""Erasing for good: after it, no byte of what was deleted is left in the database or its log.

SQLite overwrites deleted cells and freed pages with zeros at once (`secure_delete`, see
`datastores.storage.sqlite`). What remains are copies, in three places:

- word indexes keep the words of a deleted text until their segments are merged;
- the unallocated space of B-tree pages keeps cells that moved to another page when the tree was
  rebalanced (merging and emptying the log alone left words of a deleted title in 25 of 60 trials);
- the write-ahead log keeps earlier versions of pages until it is truncated.

`erase` removes them by rewriting the whole file, which also gives its free pages back; nobody can
write meanwhile. `erase_in_steps` is for a store that people wait for: it merges word indexes a few
pages at a time and overwrites the unallocated space in blocks, each under a write lock of
milliseconds.

A database that is erased has a table `erasures` with one row per request. A request is committed
together with the deletion, so that one that was interrupted is completed later.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from time import monotonic, sleep

from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage.integrity import schema_version
from datastores.storage.sqlite import Store

MERGED_PAGES = 64
"""Pages of a word index that one transaction merges."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of the file that are inspected under one write lock: some 5 ms."""
RETRY_S = 0.005
"""Between two attempts to truncate the log. None waits for readers: it would keep writers out."""
VACUUM_BYTES = 4 * 2**20
"""A file with no more live bytes than this is rewritten as a whole: that takes under 0.1 s."""

FILE_HEADER_BYTES = 100
_HEADER_BYTES = {2: 12, 5: 12, 10: 8, 13: 8}
"""Bytes of a B-tree page's header, by its first byte: interior pages of an index and of a table,
leaf pages of an index and of a table (https://sqlite.org/fileformat2.html, section 1.6)."""
_CELLS_AND_CONTENT = struct.Struct(">HH")
"""Bytes 3 to 6 of the header: the number of cells, and where their content starts."""
MAX_PAGES = 1 << 25
"""Below this, pages of other kinds begin with 0 or 1, the highest byte of a page number."""


def request_erasure(db: Database) -> None:
    """Note, within a transaction that deletes, that an erasure must follow."""
    db.conn.execute("INSERT INTO erasures DEFAULT VALUES")


def erase_requested(store: Store, indexes: Sequence[str] = ()) -> bool:
    """Erase if anything was deleted since the last time; returns whether there was work.

    Args:
        indexes: the database's FTS5 tables.

    Raises:
        StoreError: as `erase`; the request stays noted.
    """
    request = _latest_request(store)
    if request is None:
        return False
    for index in indexes:
        _merge_segments(store, index)
    erase(store)
    _complete(store, request)
    return True


def erase_in_steps(store: Store, indexes: Sequence[str] = ()) -> bool:
    """As `erase_requested`, while others write: no lock is held for more than milliseconds.

    The file keeps its size unless little is left in it; later rows fill the free pages.
    """
    request = _latest_request(store)
    if request is None:
        return False
    for index in indexes:
        _merge_segments(store, index)
    if _is_overwritable(store):
        overwrite_unallocated(store)
    else:
        erase(store)
    _complete(store, request)
    return True


def _latest_request(store: Store) -> int | None:
    latest: int | None = store.rows("SELECT max(wanted) AS latest FROM erasures")[0]["latest"]
    return latest


def _complete(store: Store, request: int) -> None:
    """Drop the requests up to `request`: what was deleted since then is not erased yet."""
    with store.writing() as db:
        db.conn.execute("DELETE FROM erasures WHERE wanted <= ?", (request,))


def _is_overwritable(store: Store) -> bool:
    """Whether erasing page by page is possible, and better than rewriting the file."""
    pages, free, auto_vacuum, page_bytes = (
        int(store.rows(f"PRAGMA {name}")[0][name])
        for name in ("page_count", "freelist_count", "auto_vacuum", "page_size")
    )
    mostly_free = pages < 2 * free and (pages - free) * page_bytes < VACUUM_BYTES
    return pages < MAX_PAGES and not auto_vacuum and not mostly_free


def erase(store: Store) -> None:
    """Rewrite the file without what was deleted from it, and empty its log.

    Raises:
        StoreError: another process reads an older state for longer than a statement waits; the log
            is not empty, and calling this again finishes the work.
    """
    store.vacuum()
    # The new file was written into the log; this copies it back and cuts the log to nothing.
    if store.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"]:
        raise _hindered(store)


def _hindered(store: Store) -> StoreError:
    return StoreError(
        f"{store.path}: another window is reading it, so what was deleted is still in its log;"
        " close that window and do this again"
    )


def _merge_segments(store: Store, index: str) -> None:
    """Merge all segments of a word index into one, in many small transactions.

    A negative number starts a merge of all segments, positive ones continue it; it is complete when
    a call changes no more than its own row (https://sqlite.org/fts5.html, section 6.8).
    """
    with closing(store.new_connection()) as own:
        own.db.conn.execute("PRAGMA synchronous = NORMAL")
        pages = -MERGED_PAGES
        while True:
            start = monotonic()
            with own.writing() as db:
                before = db.conn.total_changes
                db.conn.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', {pages})")
                changes = db.conn.total_changes - before
            if changes < 2:
                return
            pages = MERGED_PAGES
            # As long again for those who wait: a waiting connection polls, it is not queued.
            sleep(max(monotonic() - start, 0.002))


def overwrite_unallocated(store: Store) -> None:
    """Overwrite the unallocated space of all B-tree pages with zeros, block by block.

    SQLite never interprets those bytes, but it copies them with their page, from a connection's
    cache or from the log. So a block is overwritten in the file while the log is empty and nobody
    can write, and then a commit makes every connection drop its cached pages.

    Raises:
        StoreError: another process hinders it.
    """
    page_bytes = int(store.rows("PRAGMA page_size")[0]["page_size"])
    raw, start, end = store.raw_file(), 0, 1
    while start < end:
        with _writing_alone(store):
            raw.seek(start)
            pages = raw.read(BLOCK_BYTES)
            for offset, length in _stale_ranges(pages, page_bytes, first=start == 0):
                raw.seek(start + offset)
                raw.write(bytes(length))
            os.fsync(raw.fileno())
            end = raw.seek(0, os.SEEK_END)
        start += BLOCK_BYTES


@contextmanager
def _writing_alone(store: Store) -> Iterator[None]:
    """Hold the write lock while the log is empty, so that all of the database is in its file.

    The connection is one of its own, which has cached no page but the first; that holds the schema.
    """
    log = store.path.with_name(f"{store.path.name}-wal")
    timeout_ms = int(store.rows("PRAGMA busy_timeout")[0]["timeout"])
    deadline = monotonic() + timeout_ms / 1000
    with closing(store.new_connection()) as own:
        while True:
            own.rows("PRAGMA busy_timeout = 0")
            busy = own.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"]
            own.rows(f"PRAGMA busy_timeout = {timeout_ms}")
            if not busy:
                with own.writing() as db:
                    if not log.stat().st_size:
                        yield
                        # Any commit will do; this one changes nothing.
                        version = schema_version(db.conn)
                        db.conn.execute(f"PRAGMA user_version = {version}")
                        return
            if monotonic() > deadline:
                raise _hindered(store)
            sleep(RETRY_S)


def _stale_ranges(pages: bytes, page_bytes: int, *, first: bool) -> Iterator[tuple[int, int]]:
    """Offset and length of each unallocated range in `pages` that is not all zeros.

    Args:
        first: `pages` begin with the file's first page, whose header follows the file's own.
    """
    zeros = bytes(page_bytes)
    for page in range(0, len(pages), page_bytes):
        header = page + (FILE_HEADER_BYTES if first and page == 0 else 0)
        if pages[header] not in _HEADER_BYTES:
            continue
        cells, content = _CELLS_AND_CONTENT.unpack_from(pages, header + 3)
        start = header + _HEADER_BYTES[pages[header]] + 2 * cells
        # The largest pages have 65536 bytes, which two bytes give as 0.
        end = page + (content or 65536)
        if start < end <= page + page_bytes and pages[start:end] != zeros[: end - start]:
            yield start, end - start
