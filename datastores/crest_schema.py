"""CREST's schema, as numbered steps. A step that was released is never edited again."""

from __future__ import annotations

from sqlite_utils import Database


def _tiers_and_pages(db: Database) -> None:
    # Pages of the settled tier are numbered 0, 1, …; those of the recent one -1, -2, …: one table,
    # so that one statement fetches all that a lookup needs. `fresh` keeps the token ids of recent
    # documents until they are settled; of settled ones only eight bytes of identity are kept.
    db.executescript(
        """
        CREATE TABLE tiers (
            tier INTEGER PRIMARY KEY,
            longest INTEGER NOT NULL,
            pages INTEGER NOT NULL,
            entries INTEGER NOT NULL,
            ids BLOB NOT NULL,
            documents BLOB NOT NULL
        );
        CREATE TABLE pages (number INTEGER PRIMARY KEY, entries BLOB NOT NULL);
        CREATE TABLE fresh (
            identity BLOB PRIMARY KEY, kind INTEGER NOT NULL, tokens BLOB NOT NULL
        ) WITHOUT ROWID;
        """
    )


CREST = (_tiers_and_pages,)
"""Version n of the store is what the first n of these make."""
