"""Erasing for good: after it, no byte of what was deleted is left in the database or its log.

Deleted cells are overwritten at once (`secure_delete`, see `datastores.database`). What remains are
copies: in the write-ahead log, and in pages that were rebalanced.
"""

from __future__ import annotations

from datastores.database import Store
from datastores.errors import StoreError
from datastores.failures import named_errors


def erase(store: Store) -> None:
    """Rewrite the file without what was deleted from it, and empty its log.

    Raises:
        StoreError: another process reads an older state for longer than a statement waits; the log
            is not empty, and calling this again finishes the work.
    """
    with named_errors(store.path):
        store.db.conn.execute("VACUUM")
    # VACUUM writes the new file into the log; this copies it back and cuts the log to nothing.
    if store.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0]["busy"]:
        raise StoreError(
            f"{store.path}: another window is reading it, so what was deleted still lies in its"
            " log; close that window and do this again"
        )
