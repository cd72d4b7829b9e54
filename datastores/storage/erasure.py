"""Erases deleted rows: no byte of them is left in the database or its log.

SQLite overwrites deleted cells and freed pages with zeros at once (`secure_delete`, see
`datastores.storage.sqlite`). Copies remain in three places:

- word indexes keep the words of a deleted text until their segments are merged;
- the unallocated space of B-tree pages keeps cells that moved to another page when the tree was
  rebalanced (merging and emptying the log alone left words of a deleted title in 25 of 60 trials);
- the write-ahead log keeps earlier versions of pages until it is truncated.

So the segments are merged, the file is rewritten as a whole (VACUUM), and the log is truncated.
Only SQLite writes the file, each step in one transaction: a kill, a power cut or a full disk leaves
the state before the step or after it, and every other connection drops its cached pages
(https://sqlite.org/lang_vacuum.html, https://sqlite.org/wal.html). Readers are not blocked; writers
are, for some seconds per 100 MB, hence the long `BUSY_TIMEOUT_S`.

Overwriting the unallocated space in place would block nobody, but is not safe. POSIX drops all of
a process's locks on a file when it closes any descriptor of it, so another process may delete the
log under an open connection (https://sqlite.org/howtocorrupt.html, section 2.2); the log cannot
repair a sector that a power cut tears; and rebalancing may move a page's copies to a page that was
overwritten before.

Such a database has a table `erasures` with one row per request. A request is committed together
with the deletion, so an interrupted erasure is completed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, sleep

from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage.sqlite import Store

RETRY_S = 0.005
"""Interval of attempts to truncate the log. None waits for readers, which would block writers."""
READERS_TIMEOUT_S = 10.0
"""Longest wait for readers of an older state; ours read for milliseconds."""


def request_erasure(db: Database) -> None:
    """Request an erasure, within the transaction that deletes."""
    db.conn.execute("INSERT INTO erasures DEFAULT VALUES")


def erase_requested(store: Store, indexes: Sequence[str] = ()) -> bool:
    """Erase if anything was deleted since the last time; returns whether there was work.

    Args:
        indexes: the database's FTS5 tables.

    Raises:
        StoreError: as `empty_log`; the request stays recorded.
    """
    request = store.rows("SELECT max(wanted) AS latest FROM erasures")[0]["latest"]
    if request is None:
        return False
    for index in indexes:
        with store.writing() as db:
            db.conn.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
    store.vacuum()
    empty_log(store)
    with store.writing() as db:
        # Later deletions are not erased yet.
        db.conn.execute("DELETE FROM erasures WHERE wanted <= ?", (request,))
    return True


def empty_log(store: Store) -> None:
    """Move the log into the file, and truncate it.

    That suffices if the file itself keeps no copy of what was deleted.

    Raises:
        StoreError: another process reads an older state for too long; the log is not empty, and
            another call finishes the work.
    """
    timeout_ms = int(store.rows("PRAGMA busy_timeout")[0]["timeout"])
    deadline = monotonic() + min(timeout_ms / 1000, READERS_TIMEOUT_S)
    while not _truncate_log(store, timeout_ms):
        if monotonic() > deadline:
            raise StoreError(
                f"{store.path}: another window is reading it, so what was deleted is still in its"
                " log; close that window and try again"
            )
        sleep(RETRY_S)


def _truncate_log(store: Store, timeout_ms: int) -> bool:
    """Try once to empty the log; fails if another connection is reading or writing."""
    store.rows("PRAGMA busy_timeout = 0")
    try:
        return not store.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"]
    finally:
        store.rows(f"PRAGMA busy_timeout = {timeout_ms}")
