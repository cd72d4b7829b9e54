"""The library: imports with their files, documents and texts, in SQLite.

A text is stored once, under the digest of its content, however many documents contain it, and is
deleted with the last of them. Drafters use projections of it (see `datastores.corpus`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path, PurePath

from sqlite_utils import Database

from datastores.errors import InputError
from datastores.library.documents import (
    Document,
    DocumentPlace,
    FinishFile,
    Import,
    Part,
    StoreDocument,
)
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store


def _imports_and_texts(db: Database) -> None:
    # On disk an import is called a source, as in the libraries of earlier versions.
    # All keys derive from content, so that rows do not depend on the order of imports or on earlier
    # deletions. For the same reason requests to erase have no persistent counter; only the process
    # that holds the work lock deletes and erases.
    db.executescript(
        """
        CREATE TABLE sources (
            path TEXT PRIMARY KEY,
            name TEXT NOT NULL DEFAULT ''
        ) WITHOUT ROWID;
        CREATE UNIQUE INDEX sources_by_name ON sources(name) WHERE name <> '';
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


def _name_imports(db: Database) -> None:
    """Name the imports of earlier versions, which had only paths."""
    for row in list(db.query("SELECT path FROM sources WHERE name = '' ORDER BY path")):
        _set_name(db, row["path"], _free_name(db, row["path"]))


MAX_NAME = 100
"""Longest name of an import, in characters."""

SCHEMA = Schema(2, _imports_and_texts, convert=_name_imports)


class Library:
    """All imported texts in one file, for any number of processes and threads.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @classmethod
    def open(cls, path: Path) -> Library:
        """Open or create the library; `store.quarantined` names a damaged predecessor."""
        library = cls(Store(path, SCHEMA))
        # A power failure may lose recent transactions, which can be imported again.
        library.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return library

    def close(self) -> None:
        self.store.close()

    def imports(self) -> list[Import]:
        """All imports, by path."""
        return [
            Import(**{**row, "kinds": _listed(row["kinds"]), "whole": bool(row["whole"])})
            for row in self.store.rows(_IMPORTS)
        ]

    def contains(self, import_path: str) -> bool:
        """Whether anything was imported from `import_path`."""
        return bool(self.store.rows("SELECT 1 FROM sources WHERE path = ?", (import_path,)))

    def finished_file(self, import_path: str, file: str) -> tuple[str, int]:
        """The digest of `file` when it was read to its end, and the number of its documents.

        The digest is empty if the file has not been read, or should be read again.
        """
        sql = """
            SELECT files.digest, count(*) AS number FROM files JOIN documents
            ON documents.source = files.source AND documents.file = files.name
            WHERE files.source = ? AND files.name = ? AND finished GROUP BY files.digest
        """
        rows = self.store.rows(sql, (import_path, file))
        return (str(rows[0]["digest"]), int(rows[0]["number"])) if rows else ("", 0)

    def write(self, entries: Sequence[StoreDocument | FinishFile]) -> list[StoreDocument]:
        """Apply `entries` in order, all or none; returns the new and changed documents."""
        new = []
        with self.store.writing() as db:
            for entry in entries:
                if isinstance(entry, FinishFile):
                    _finish(db, entry)
                elif _store_document(db, entry):
                    new.append(entry)
        return new

    def names(self) -> dict[str, str]:
        """The path of every import → its name, by path."""
        rows = self.store.rows("SELECT path, name FROM sources ORDER BY path")
        return {row["path"]: row["name"] for row in rows}

    def rename(self, path: str, name: str) -> str:
        """Name an import; returns the name as stored.

        Raises:
            InputError: there is no such import, or the name is empty, too long, or another's.
        """
        chosen = " ".join(name.encode("utf-8", "replace").decode().split())
        if not 0 < len(chosen) <= MAX_NAME:
            raise InputError(f"the name of an import has 1 to {MAX_NAME} characters")
        with self.store.writing() as db:
            names = self.names()
            if path not in names:
                raise _not_imported(path)
            other = next((one for one in names if names[one].casefold() == chosen.casefold()), path)
            if other != path:
                raise InputError(f"'{chosen}' is the name of {other}: choose another one")
            _set_name(db, path, chosen)
        return chosen

    def forget(self, path: str) -> None:
        """Delete an import with the texts that no other import contains. `erase` must follow.

        Raises:
            InputError: there is no such import.
        """
        with self.store.writing() as db:
            _delete_documents(db, "source = ?", (path,))
            if not db.conn.execute("DELETE FROM sources WHERE path = ?", (path,)).rowcount:
                raise _not_imported(path)
            request_erasure(db)

    def forget_files(self, import_path: str, files: Iterable[str]) -> None:
        """Delete files of an import with the texts that no other file contains. `erase` must
        follow."""
        with self.store.writing() as db:
            for file in (gone := list(files)):
                _delete_documents(db, "source = ? AND file = ?", (import_path, file))
            db.conn.executemany(
                "DELETE FROM files WHERE source = ? AND name = ?",
                [(import_path, file) for file in gone],
            )
            request_erasure(db)

    def files(self, import_path: str) -> set[str]:
        """The names of the files of an import."""
        rows = self.store.rows("SELECT name FROM files WHERE source = ?", (import_path,))
        return {row["name"] for row in rows}

    def erase(self) -> bool:
        """Erase every byte of deleted texts; returns whether anything was to erase.

        Raises:
            StoreError: another process reads an older state; the request remains.
        """
        return erase_requested(self.store)

    def digests(self) -> list[bytes]:
        """The digests of all texts, in order."""
        return [
            bytes(row["digest"])
            for row in self.store.rows("SELECT digest FROM texts ORDER BY digest")
        ]

    @property
    def text_count(self) -> int:
        """Number of texts."""
        return int(self.store.rows("SELECT count(*) AS number FROM texts")[0]["number"])

    def titles(self) -> dict[bytes, tuple[str, str]]:
        """Text → file and title of its first document, in the order of `places`."""
        order = "source DESC, file DESC, position DESC"
        rows = self.store.rows(f"SELECT text, file, title FROM documents ORDER BY {order}")
        return {bytes(row["text"]): (row["file"], row["title"]) for row in rows}

    def import_texts(self) -> list[tuple[str, bytes]]:
        """All pairs of an import's path and the digest of a text in it."""
        rows = self.store.rows("SELECT DISTINCT source, text FROM documents")
        return [(row["source"], bytes(row["text"])) for row in rows]

    def places(self, digest: bytes) -> list[DocumentPlace]:
        """The places that the text was imported from, sorted by import and file."""
        sql = """
            SELECT source, name, file, title,
                (SELECT kind FROM parts WHERE parts.text = documents.text LIMIT 1) AS kind
            FROM documents JOIN sources ON path = source WHERE text = ? ORDER BY source, file
        """
        return [DocumentPlace(*row.values()) for row in self.store.rows(sql, (digest,))]

    def documents(self, kind: str) -> list[tuple[bytes, DocumentPlace]]:
        """The documents of `kind`, that of their first part, each with its digest and a place."""
        sql = """
            SELECT text, source, name, file, title, kind FROM (
                SELECT text, source, file, min(title) AS title,
                    (SELECT kind FROM parts WHERE parts.text = documents.text LIMIT 1) AS kind
                FROM documents GROUP BY text
            ) JOIN sources ON path = source WHERE kind = ?
        """
        rows = self.store.rows(sql, (kind,))
        return [(bytes(row.pop("text")), DocumentPlace(*row.values())) for row in rows]

    def version(self) -> int:
        """A number that changes whenever another connection has changed the library."""
        return int(self.store.rows("PRAGMA data_version")[0]["data_version"])

    def texts_in(self, import_path: str, file: str) -> list[bytes]:
        """The digests of the texts of one file, in order; none if it is not imported."""
        sql = "SELECT text FROM documents WHERE source = ? AND file = ? ORDER BY position"
        return [bytes(row["text"]) for row in self.store.rows(sql, (import_path, file))]

    def read(self, digest: bytes) -> tuple[Part, ...]:
        """The parts of one text, in order; none if the text does not exist."""
        sql = "SELECT kind, content, role FROM parts WHERE text = ? ORDER BY position"
        rows = self.store.rows(sql, (digest,))
        return tuple(Part(row["kind"], row["content"], row["role"]) for row in rows)


_IMPORTS = """
    SELECT path, name,
        (SELECT count(*) FROM files WHERE source = path) AS files,
        (SELECT count(*) FROM documents WHERE source = path) AS documents,
        (SELECT coalesce(sum(characters), 0) FROM documents JOIN texts ON digest = text
         WHERE source = path) AS characters,
        (SELECT coalesce(group_concat(DISTINCT kind), '') FROM documents JOIN parts USING (text)
         WHERE source = path) AS kinds,
        NOT EXISTS (SELECT 1 FROM files WHERE source = path AND NOT finished) AS whole
    FROM sources ORDER BY path
"""


def _store_document(db: Database, entry: StoreDocument) -> bool:
    """Store one document; returns false if it was already stored."""
    digest = entry.document.digest
    place = (entry.import_path, entry.file, entry.position)
    same = "SELECT 1 FROM documents WHERE source = ? AND file = ? AND position = ? AND text = ?"
    known = db.conn.execute(same, (*place, digest)).fetchone()
    _open_file(db, entry.import_path, entry.file)
    _store_text(db, digest, entry.document)
    db.conn.execute(
        """
        INSERT INTO documents (source, file, position, title, text) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET title = excluded.title, text = excluded.text
        """,
        (*place, entry.document.title, digest),
    )
    return known is None


def _open_file(db: Database, import_path: str, file: str) -> None:
    """Mark `file` as being read."""
    if not db.conn.execute("SELECT 1 FROM sources WHERE path = ?", (import_path,)).fetchone():
        row = (import_path, _free_name(db, import_path))
        db.conn.execute("INSERT INTO sources (path, name) VALUES (?, ?)", row)
    db.conn.execute(
        "INSERT INTO files VALUES (?, ?, '', 0) ON CONFLICT DO UPDATE SET finished = 0",
        (import_path, file),
    )


def _free_name(db: Database, path: str) -> str:
    """A name for the import of `path`: its last component, or as many as no other import has."""
    taken = {row["name"].casefold() for row in db.query("SELECT name FROM sources")}
    parts = [part for part in PurePath(path).parts if part.strip("/\\")] or [path]
    ends = ["/".join(parts[-length:]) for length in range(1, len(parts) + 1)]
    names = chain(ends, (f"{number} {ends[-1]}" for number in count(2)))
    short = (" ".join(name.split())[:MAX_NAME] for name in names)
    return next(name for name in short if name and name.casefold() not in taken)


def _set_name(db: Database, path: str, name: str) -> None:
    db.conn.execute("UPDATE sources SET name = ? WHERE path = ?", (name, path))


def _not_imported(path: str) -> InputError:
    return InputError(f"{path} is not imported: `specchat imports` lists imports")


def _store_text(db: Database, digest: bytes, document: Document) -> None:
    row = (digest, document.characters)
    if db.conn.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", row).rowcount:
        db.conn.executemany(
            "INSERT INTO parts (text, position, kind, role, content) VALUES (?, ?, ?, ?, ?)",
            [
                (digest, position, part.kind, part.role, part.text)
                for position, part in enumerate(document.parts)
            ],
        )


def _delete_documents(db: Database, condition: str, values: Sequence[object]) -> None:
    """Delete the documents that meet an SQL condition, one at a time: all rows that one statement
    deletes stay in memory until it ends."""
    sql = f"SELECT source, file, position FROM documents WHERE {condition}"
    found = db.conn.execute(sql, tuple(values)).fetchall()
    one = "DELETE FROM documents WHERE source = ? AND file = ? AND position = ?"
    db.conn.executemany(one, found)


def _finish(db: Database, entry: FinishFile) -> None:
    """Mark the file as finished, and delete documents that are no longer in it.

    If something in it could not be used, documents beyond those found may be unreadable at the
    moment, so they stay.
    """
    if entry.digest:
        beyond = "source = ? AND file = ? AND position >= ?"
        _delete_documents(db, beyond, (entry.import_path, entry.file, entry.count))
    finished = "UPDATE files SET digest = ?, finished = 1 WHERE source = ? AND name = ?"
    db.conn.execute(finished, (entry.digest, entry.import_path, entry.file))


def _listed(names: str) -> tuple[str, ...]:
    return tuple(sorted(names.split(","))) if names else ()
