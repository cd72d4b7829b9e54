"""The tables of a dense index."""

from __future__ import annotations

from sqlite_utils import Database

from datastores.storage.schema import Schema


def _keys_and_tokens(db: Database) -> None:
    # On disk a text is called a document, and its owner `source`.
    # Blocks are sized so that a leaf page of 4 KiB holds them without much slack: four blocks of
    # 15 keys of 64 bytes. Rows are found by their row id, which only grows: pages fill up in order
    # and stay full.
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
            length INTEGER NOT NULL,
            keys INTEGER NOT NULL DEFAULT 0
        );
        CREATE INDEX documents_by_source ON documents(source);
        CREATE TABLE spans (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            tokens BLOB NOT NULL,
            UNIQUE (document, block)
        );
        CREATE TABLE projections (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            packed BLOB NOT NULL,
            states INTEGER NOT NULL
        );
        CREATE TABLE keys (
            id INTEGER PRIMARY KEY,
            document INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
            block INTEGER NOT NULL,
            present INTEGER NOT NULL,
            codes BLOB NOT NULL,
            UNIQUE (document, block)
        );
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY AUTOINCREMENT);
        """
    )


SCHEMA = Schema(2, _keys_and_tokens, lasting=frozenset({"model", "documents", "spans"}), cache=True)
