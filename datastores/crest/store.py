"""CREST on disk: n-grams mapped to token trees, in one SQLite file for each tokenizer.

A store has two tiers. The *base* tier holds what `rebuild` made of all documents under the byte
budget; it is a function of the set of documents alone. The *delta* tier holds what `update` made of
the few documents added since: an answer is drafted from as soon as it is finished, and the rebuild
promotes its common n-grams and drops its rare ones. The text is stored elsewhere (the history, the
library), so nothing is ever subtracted: documents leave by `retain` and the rebuild after it.

Owns the file, its schema and its transactions: each call is all or nothing, and a document counts
once, by its identity, however often it is given. Refuses to know text, tokenizers and what kinds of
sources mean. Lookups go through `datastores.crest.reader`, on a connection of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.crest.build import BuiltStore, build, count, select
from datastores.crest.counting import TokenDocument
from datastores.storage.erasure import erase
from datastores.storage.sqlite import Store
from datastores.tokens import unpack


def _tiers_and_pages(db: Database) -> None:
    # Pages of the base tier are numbered 0, 1, …; those of the delta tier -1, -2, …: one table, so
    # that one statement fetches all that a lookup needs. Documents keep their token ids until a
    # rebuild takes them into the base tier, which keeps eight bytes of their identity.
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


def _pending_documents(db: Database) -> None:
    db.executescript("ALTER TABLE fresh RENAME TO pending")


MIGRATIONS = (_tiers_and_pages, _pending_documents)
"""Version n of the store is what the first n of these produce. One that was released is never
edited again."""

BASE = 0
DELTA = 1
"""Numbers of the tiers."""
MAX_DELTA_TOKENS = 1 << 15
"""Tokens of pending documents above which a rebuild is due."""
DELTA_SHARE = 8
"""The delta tier takes at most this fraction of the budget, half of it for the documents."""
DOCUMENT_BYTES = 64
"""Of a pending document, beside its tokens."""
IDENTITY_BYTES = 8
"""Of a document's identity, in the base tier."""
ERASURE_DUE = 0x45524153
"""The file's application id from a removal until its bytes are erased."""
MIN_BUDGET_BYTES = 1 << 16
"""A smaller budget holds nothing useful."""


class CrestStore:
    """The writing side. Several processes and threads may use one file at once.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, store: Store, budget_bytes: int) -> None:
        self.store = store
        self.budget_bytes = budget_bytes

    @classmethod
    def open(cls, path: Path, budget_bytes: int) -> CrestStore:
        """Open or create the store; `store.quarantined` names a damaged predecessor.

        Args:
            budget_bytes: the most the file may take, at least `MIN_BUDGET_BYTES`.
        """
        opened = cls(Store(path, MIGRATIONS), max(budget_bytes, MIN_BUDGET_BYTES))
        # A projection: what a power failure loses is rebuilt from the texts.
        opened.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return opened

    def close(self) -> None:
        self.store.close()

    def unknown(self, identities: Iterable[bytes]) -> list[bytes]:
        """Those of `identities` that the store has not seen, in order."""
        known = self._identities()
        return [identity for identity in identities if identity[:IDENTITY_BYTES] not in known]

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        path = self.store.path
        files = (path, path.with_name(path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def update(self, documents: Sequence[TokenDocument]) -> bool:
        """Add `documents` to the delta tier, all or none of them; known ones change nothing.

        Returns whether they fitted. If not, `rebuild` is due.
        """
        with self.store.writing() as db:
            new = frozenset(self.unknown(document.identity for document in documents))
            pending = [document for document in documents if document.identity in new]
            if not self._fits_delta([*_read_pending(db), *pending]):
                return False
            if pending:
                _store_pending(db, pending)
                self._build_delta(db)
        return True

    def rebuild(self, documents: Iterable[TokenDocument]) -> None:
        """Build the base tier from `documents`, which must be all there are.

        The old tier is read until the new one is committed. A pending document that is not among
        `documents` (it was added meanwhile) stays pending.
        """
        prefixes: set[bytes] = set()
        counted = count(_unique(documents, prefixes), self._base_bytes(0))
        self.replace(select(counted, self._base_bytes(len(prefixes))), prefixes)

    def replace(self, built: BuiltStore, prefixes: Iterable[bytes]) -> None:
        """Make `built` the base tier; `prefixes` are the first bytes of its identities."""
        with self.store.writing() as db:
            rows = [(prefix,) for prefix in prefixes]
            db.conn.executemany(
                f"DELETE FROM pending WHERE substr(identity, 1, {IDENTITY_BYTES}) = ?", rows
            )
            _write(db, BASE, built, prefixes)
            self._build_delta(db)
        self._truncate_log()

    def retain(self, identities: Iterable[bytes]) -> bool:
        """Remove all documents but `identities`; whether `rebuild` must follow.

        Nothing can be subtracted from the base tier. If it holds anything else it is emptied at
        once, so that nothing of it is drafted until the rebuild. No byte of it is left in the file.

        Raises:
            StoreError: also if another process reads an older state; the documents are removed, but
                the log may still hold them until this is called again.
        """
        kept = frozenset(identity[:IDENTITY_BYTES] for identity in identities)
        if self._identities() <= kept:
            self._erase()
            return False
        with self.store.writing() as db:
            db.conn.execute(f"PRAGMA application_id = {ERASURE_DUE}")
            due = not self._base_identities() <= kept
            if due:
                _clear(db, BASE)
            gone = [
                (one.identity,)
                for one in _read_pending(db)
                if one.identity[:IDENTITY_BYTES] not in kept
            ]
            db.conn.executemany("DELETE FROM pending WHERE identity = ?", gone)
            self._build_delta(db)
        self._erase()
        return due

    def _erase(self) -> None:
        """Leave no byte of what was removed, if that is still owed."""
        if self.store.rows("PRAGMA application_id")[0]["application_id"] == ERASURE_DUE:
            erase(self.store)
            with self.store.writing() as db:
                db.conn.execute("PRAGMA application_id = 0")

    def _identities(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT identity FROM pending")
        return self._base_identities().union(
            bytes(row["identity"])[:IDENTITY_BYTES] for row in rows
        )

    def _base_identities(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT documents FROM tiers WHERE tier = ?", (BASE,))
        blob = bytes(rows[0]["documents"]) if rows else b""
        return frozenset(
            blob[at : at + IDENTITY_BYTES] for at in range(0, len(blob), IDENTITY_BYTES)
        )

    def _base_bytes(self, documents: int) -> int:
        """Bytes for the pages of the base tier, beside everything else in the file."""
        return self.budget_bytes - self.budget_bytes // DELTA_SHARE - IDENTITY_BYTES * documents

    def _fits_delta(self, pending: Sequence[TokenDocument]) -> bool:
        """Whether the delta tier has room for `pending`."""
        few = sum(len(document.tokens) for document in pending) <= MAX_DELTA_TOKENS
        return few and 2 * _pending_bytes(pending) <= self.budget_bytes // DELTA_SHARE

    def _build_delta(self, db: Database) -> None:
        """Rebuild the delta tier from the pending documents."""
        pending = list(_read_pending(db))
        if pending:
            room = self.budget_bytes // DELTA_SHARE - _pending_bytes(pending)
            _write(db, DELTA, build(pending, room), ())
        else:
            _clear(db, DELTA)

    def _truncate_log(self) -> None:
        """Move the log into the file; if somebody is reading, the next call does."""
        self.store.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _unique(documents: Iterable[TokenDocument], prefixes: set[bytes]) -> Iterator[TokenDocument]:
    """`documents` without repetitions; adds the prefix of each identity to `prefixes`."""
    for document in documents:
        prefix = document.identity[:IDENTITY_BYTES]
        if prefix not in prefixes:
            prefixes.add(prefix)
            yield document


def _read_pending(db: Database) -> Iterator[TokenDocument]:
    rows = db.conn.execute("SELECT identity, kind, tokens FROM pending ORDER BY identity")
    for identity, kind, tokens in rows:
        yield TokenDocument(identity, unpack(tokens), kind)


def _pending_bytes(pending: Sequence[TokenDocument]) -> int:
    """Bytes of the file that pending documents take themselves."""
    return sum(4 * len(document.tokens) + DOCUMENT_BYTES for document in pending)


def _store_pending(db: Database, documents: Iterable[TokenDocument]) -> None:
    db.conn.executemany(
        "INSERT OR IGNORE INTO pending VALUES (?, ?, ?)",
        [
            (one.identity, one.kind, np.asarray(one.tokens, dtype="<u4").tobytes())
            for one in documents
        ],
    )


def _write(db: Database, tier: int, built: BuiltStore, prefixes: Iterable[bytes]) -> None:
    """Make `built` the content of `tier`."""
    _clear(db, tier)
    rows = ((-1 - number if tier == DELTA else number, page) for number, page in built.pages)
    db.conn.executemany("INSERT INTO pages VALUES (?, ?)", rows)
    documents = b"".join(sorted(prefixes))
    row = (tier, built.longest, built.page_count, built.entry_count, pack_ids(built.ids), documents)
    db.conn.execute("INSERT INTO tiers VALUES (?, ?, ?, ?, ?, ?)", row)


def _clear(db: Database, tier: int) -> None:
    where = "number < 0" if tier == DELTA else "number >= 0"
    db.conn.execute(f"DELETE FROM pages WHERE {where}")
    db.conn.execute("DELETE FROM tiers WHERE tier = ?", (tier,))


def pack_ids(ids: NDArray[np.uint32]) -> bytes:
    """Token ids by rank: two bytes each where that suffices, after a byte that says so."""
    width = 2 if not len(ids) or int(ids.max()) < 1 << 16 else 4
    return bytes([width]) + ids.astype(f"<u{width}").tobytes()


def unpack_ids(blob: bytes) -> list[int]:
    """The token ids in `blob`, by rank."""
    return np.frombuffer(blob, dtype=f"<u{blob[0]}", offset=1).tolist() if blob else []
