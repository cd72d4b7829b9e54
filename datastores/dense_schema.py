"""The dense index's schema, as numbered steps. A step that was released is never edited again."""

from __future__ import annotations

from sqlite_utils import Database


def _documents_and_keys(db: Database) -> None:
    _documents(db)
    _keys(db)


def _documents(db: Database) -> None:
    """The texts, as tokens, and which model reads them."""
    # Blocks are sized so that a leaf page of 4 KiB holds them whole and without much slack: four
    # blocks of 15 keys of 64 bytes. Rows are found by their row id, which only grows: pages fill
    # up in order and stay full.
    db.executescript(
        """
        CREATE TABLE model (
            fingerprint TEXT NOT NULL,
            width INTEGER NOT NULL
        );
        CREATE TABLE documents (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            source TEXT NOT NULL,
            first INTEGER NOT NULL,
            length INTEGER NOT NULL
        );
        CREATE INDEX documents_by_source ON documents(source);
        CREATE TABLE spans (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            tokens BLOB NOT NULL,
            UNIQUE (document, block)
        );
        """
    )


def _keys(db: Database) -> None:
    """What the model made of them: projections, their keys, and what the next one is made from."""
    db.executescript(
        """
        CREATE TABLE generations (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            state TEXT NOT NULL CHECK (state IN ('serving', 'building')) UNIQUE,
            projection BLOB NOT NULL,
            states INTEGER NOT NULL,
            explained REAL NOT NULL
        );
        CREATE TABLE keys (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            generation INTEGER NOT NULL REFERENCES generations(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            present INTEGER NOT NULL,
            codes BLOB NOT NULL,
            UNIQUE (document, generation, block)
        );
        CREATE TABLE coverage (
            generation INTEGER NOT NULL REFERENCES generations(id) ON DELETE CASCADE,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            keys INTEGER NOT NULL,
            PRIMARY KEY (generation, document)
        ) WITHOUT ROWID;
        CREATE INDEX coverage_by_document ON coverage(document);
        CREATE TABLE moments (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            packed BLOB NOT NULL
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        """
    )


DENSE = (_documents_and_keys,)
"""Version n of a dense index is what the first n of these make."""
