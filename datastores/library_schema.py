"""The library's schema, as numbered steps. A step that was released is never edited again."""

from __future__ import annotations

from sqlite_utils import Database


def _sources_and_texts(db: Database) -> None:
    # Every key is made of content, none of counting: what is stored does not depend on the order in
    # which it came, nor on what was stored and forgotten before. So wishes to erase have no lasting
    # counter either; only the process that holds the work lock forgets and erases.
    db.executescript(
        """
        CREATE TABLE sources (path TEXT PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE files (
            source TEXT NOT NULL REFERENCES sources(path) ON DELETE CASCADE,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            finished INTEGER NOT NULL,
            PRIMARY KEY (source, name)
        ) WITHOUT ROWID;
        CREATE TABLE texts (
            digest BLOB PRIMARY KEY,
            characters INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE parts (
            text BLOB NOT NULL REFERENCES texts(digest) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            kind TEXT NOT NULL,
            role TEXT NOT NULL,
            content TEXT NOT NULL,
            PRIMARY KEY (text, position)
        );
        CREATE TABLE documents (
            source TEXT NOT NULL,
            file TEXT NOT NULL,
            position INTEGER NOT NULL,
            title TEXT NOT NULL,
            text BLOB NOT NULL REFERENCES texts(digest),
            PRIMARY KEY (source, file, position),
            FOREIGN KEY (source, file) REFERENCES files(source, name) ON DELETE CASCADE
        ) WITHOUT ROWID;
        CREATE INDEX documents_by_text ON documents(text);
        CREATE TRIGGER documents_deleted AFTER DELETE ON documents
        WHEN NOT EXISTS (SELECT 1 FROM documents WHERE text = old.text) BEGIN
            DELETE FROM texts WHERE digest = old.text;
        END;
        CREATE TRIGGER documents_changed AFTER UPDATE OF text ON documents
        WHEN NOT EXISTS (SELECT 1 FROM documents WHERE text = old.text) BEGIN
            DELETE FROM texts WHERE digest = old.text;
        END;
        CREATE TABLE erasures (wanted INTEGER PRIMARY KEY);
        """
    )


LIBRARY = (_sources_and_texts,)
"""Version n of the library is what the first n of these make."""
