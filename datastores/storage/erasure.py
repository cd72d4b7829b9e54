"""Erasing for good: after it, no byte of what was deleted is left in the database or its log.

Deleted cells are overwritten at once (`secure_delete`, see `datastores.storage.sqlite`). What
remains are copies: in the write-ahead log, in pages that were rebalanced, and in word indexes,
which keep the words of a deleted text until their parts are merged. Overwriting, merging and
emptying the log alone left words of a deleted title in 25 of 60 trials; rewriting the file as well,
in none.

A database that is erased has a table `erasures`, whose rows are wishes: they are noted together
with the deletion, so that one that was interrupted is made good later.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlite_utils import Database

from datastores.errors import StoreError
from datastores.storage.sqlite import Store


def request_erasure(db: Database) -> None:
    """Note, within a transaction that deletes, that `erase_requested` must follow."""
    db.conn.execute("INSERT INTO erasures DEFAULT VALUES")


def erase_requested(store: Store, indexes: Sequence[str] = ()) -> bool:
    """Erase if anything was deleted since the last time; tells whether there was work.

    Args:
        indexes: the database's FTS5 tables.

    Raises:
        StoreError: as `erase`; the wish stays noted.
    """
    wish = store.rows("SELECT max(wanted) AS latest FROM erasures")[0]["latest"]
    if wish is None:
        return False
    with store.writing() as db:
        for index in indexes:
            db.conn.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
    erase(store)
    with store.writing() as db:
        # What another window deleted meanwhile is not erased yet.
        db.conn.execute("DELETE FROM erasures WHERE wanted <= ?", (wish,))
    return True


def erase(store: Store) -> None:
    """Rewrite the file without what was deleted from it, and empty its log.

    Raises:
        StoreError: another process reads an older state for longer than a statement waits; the log
            is not empty, and calling this again finishes the work.
    """
    store.rewrite()
    # The new file was written into the log; this copies it back and cuts the log to nothing.
    if store.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"]:
        raise StoreError(
            f"{store.path}: another window is reading it, so what was deleted still lies in its"
            " log; close that window and do this again"
        )
