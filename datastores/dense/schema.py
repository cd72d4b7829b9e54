"""The schema of a dense index, as numbered migrations. A released one is never edited."""

from __future__ import annotations

from sqlite_utils import Database

from datastores.storage.erasure import request_erasure


def _documents_and_keys(db: Database) -> None:
    _documents(db)
    _keys(db)


def _documents(db: Database) -> None:
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


def _one_projection(db: Database) -> None:
    """Keep the serving generation as the only projection, and its keys; drop a half-built one, and
    the moments that the next would have been fitted to."""
    db.executescript(
        """
        CREATE TABLE projections (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            packed BLOB NOT NULL,
            states INTEGER NOT NULL
        );
        INSERT INTO projections
            SELECT id, projection, states FROM generations WHERE state = 'serving';
        ALTER TABLE documents ADD COLUMN keys INTEGER NOT NULL DEFAULT 0;
        UPDATE documents SET keys = coverage.keys FROM coverage
            WHERE document = documents.id AND generation IN (SELECT id FROM projections);
        ALTER TABLE keys RENAME TO all_keys;
        CREATE TABLE keys (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            present INTEGER NOT NULL,
            codes BLOB NOT NULL,
            UNIQUE (document, block)
        );
        INSERT INTO keys
            SELECT id, document, block, present, codes FROM all_keys
            WHERE generation IN (SELECT id FROM projections) ORDER BY id;
        DROP TABLE all_keys;
        DROP TABLE coverage;
        DROP TABLE moments;
        DROP TABLE generations;
        """
    )
    request_erasure(db)  # gives the disk space back


MIGRATIONS = (_documents_and_keys, _one_projection)
"""Version n of a dense index is what the first n of these make."""
