"""CREST on disk: n-grams mapped to token trees, in one SQLite file for each tokenizer.

A store has two tiers. The *settled* tier holds what `rebuild` made of all documents under the
byte budget; it is a function of the set of documents alone. The *recent* tier holds what `update`
made of the few documents that came since: an answer is drafted from the moment it is finished, and
the common n-grams rise, the rare ones go, when the caller rebuilds. Text is the truth and lies
elsewhere (the history, the library), so nothing is subtracted: what is forgotten leaves by
`retain` and the rebuild that must follow it.

Owns the file and its transactions: each call is all or nothing, and a document counts once, by its
identity, however often it is given. Refuses to know text, tokenizers and what kinds of sources
mean. Lookups go through `datastores.crest.reader`, on a connection of their own.

CREST's schema, as numbered steps. A step that was released is never edited again.
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


BASE = 0
DELTA = 1
"""Numbers of the tiers."""
MAX_DELTA_TOKENS = 1 << 15
"""Tokens the recent tier takes before it must be settled."""
DELTA_SHARE = 8
"""It takes at most one part in so many of the budget, half of that for the documents themselves."""
DOCUMENT_BYTES = 64
"""A recent document takes, beside its tokens."""
IDENTITY_BYTES = 8
"""Bytes of an identity that are kept of a settled document."""
ERASURE_DUE = 0x45524153
"""Stands in the file's header, as its application id, until what was removed is erased."""
MIN_BUDGET_BYTES = 1 << 16
"""A budget below this holds nothing of use."""


class CrestStore:
    """The writing side. Several processes and threads may use one file at once.

    Every method raises StoreError where the file cannot be read or written.
    """

    def __init__(self, store: Store, budget_bytes: int) -> None:
        self.store = store
        self.budget_bytes = budget_bytes

    @classmethod
    def open(cls, path: Path, budget_bytes: int) -> CrestStore:
        """Open or create the store; `store.quarantined` tells of a damaged predecessor.

        Args:
            budget_bytes: the most the file may take, at least `MIN_BUDGET_BYTES`.
        """
        opened = cls(Store(path, CREST), max(budget_bytes, MIN_BUDGET_BYTES))
        # A projection: what is lost with the power is made again from the texts.
        opened.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return opened

    def close(self) -> None:
        self.store.close()

    def unknown(self, identities: Iterable[bytes]) -> list[bytes]:
        """Those of `identities` that the store has not seen, in order."""
        known = self._known()
        return [identity for identity in identities if identity[:IDENTITY_BYTES] not in known]

    def size(self) -> int:
        """Bytes on disk, the write-ahead log included."""
        path = self.store.path
        files = (path, path.with_name(path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def update(self, documents: Sequence[TokenDocument]) -> bool:
        """Add `documents` to the recent tier, all or none of them; known ones change nothing.

        Returns whether there was room. Where there was not, `rebuild` is due.
        """
        with self.store.writing() as db:
            new = frozenset(self.unknown(document.identity for document in documents))
            fresh = [document for document in documents if document.identity in new]
            if not self._roomy([*_fresh(db), *fresh]):
                return False
            if fresh:
                _keep(db, fresh)
                self._refresh(db)
        return True

    def rebuild(self, documents: Iterable[TokenDocument]) -> None:
        """Make the settled tier from `documents`, which must be all there are.

        The old tier serves until the new one stands. A recent document that is not among
        `documents` (it came meanwhile) stays recent.
        """
        shorts: set[bytes] = set()
        counted = count(_noting(documents, shorts), self._room(0))
        self.replace(select(counted, self._room(len(shorts))), shorts)

    def replace(self, built: BuiltStore, shorts: Iterable[bytes]) -> None:
        """Make `built` the settled tier; `shorts` are the first bytes of its identities."""
        with self.store.writing() as db:
            rows = [(short,) for short in shorts]
            db.conn.executemany(
                f"DELETE FROM fresh WHERE substr(identity, 1, {IDENTITY_BYTES}) = ?", rows
            )
            _write(db, BASE, built, shorts)
            self._refresh(db)
        self._fold()

    def retain(self, identities: Iterable[bytes]) -> bool:
        """Remove all documents but `identities`; whether `rebuild` must follow.

        The settled tier cannot subtract. It is emptied at once if it knows anything else, so that
        nothing of it is drafted, and stays so until the rebuild. No byte of it is left in the file.

        Raises:
            StoreError: also where another process reads an older state; it is forgotten, but the
                log may still hold it until this is called again.
        """
        wanted = frozenset(identity[:IDENTITY_BYTES] for identity in identities)
        if self._known() <= wanted:
            self._erase()
            return False
        with self.store.writing() as db:
            db.conn.execute(f"PRAGMA application_id = {ERASURE_DUE}")
            due = not self._settled() <= wanted
            if due:
                _clear(db, BASE)
            gone = [
                (one.identity,) for one in _fresh(db) if one.identity[:IDENTITY_BYTES] not in wanted
            ]
            db.conn.executemany("DELETE FROM fresh WHERE identity = ?", gone)
            self._refresh(db)
        self._erase()
        return due

    def _erase(self) -> None:
        """Leave no byte of what was removed, if that is still owed."""
        if self.store.rows("PRAGMA application_id")[0]["application_id"] == ERASURE_DUE:
            erase(self.store)
            with self.store.writing() as db:
                db.conn.execute("PRAGMA application_id = 0")

    def _known(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT identity FROM fresh")
        return self._settled().union(bytes(row["identity"])[:IDENTITY_BYTES] for row in rows)

    def _settled(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT documents FROM tiers WHERE tier = ?", (BASE,))
        blob = bytes(rows[0]["documents"]) if rows else b""
        return frozenset(
            blob[at : at + IDENTITY_BYTES] for at in range(0, len(blob), IDENTITY_BYTES)
        )

    def _room(self, documents: int) -> int:
        """Bytes for the settled tier's pages beside everything else in the file."""
        return self.budget_bytes - self.budget_bytes // DELTA_SHARE - IDENTITY_BYTES * documents

    def _roomy(self, recent: Sequence[TokenDocument]) -> bool:
        """Whether the recent tier may consist of `recent`."""
        few = sum(len(document.tokens) for document in recent) <= MAX_DELTA_TOKENS
        return few and 2 * _held(recent) <= self.budget_bytes // DELTA_SHARE

    def _refresh(self, db: Database) -> None:
        """Make the recent tier anew from its documents."""
        recent = list(_fresh(db))
        if recent:
            room = self.budget_bytes // DELTA_SHARE - _held(recent)
            _write(db, DELTA, build(recent, room), ())
        else:
            _clear(db, DELTA)

    def _fold(self) -> None:
        """Fold the write-ahead log into the file; where somebody reads just now, the next does."""
        self.store.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _noting(documents: Iterable[TokenDocument], shorts: set[bytes]) -> Iterator[TokenDocument]:
    """`documents` without repetitions; notes what is kept of their identities as they pass."""
    for document in documents:
        short = document.identity[:IDENTITY_BYTES]
        if short not in shorts:
            shorts.add(short)
            yield document


def _fresh(db: Database) -> Iterator[TokenDocument]:
    rows = db.conn.execute("SELECT identity, kind, tokens FROM fresh ORDER BY identity")
    for identity, kind, tokens in rows:
        yield TokenDocument(identity, unpack(tokens), kind)


def _held(recent: Sequence[TokenDocument]) -> int:
    """Bytes of the file that recent documents take themselves."""
    return sum(4 * len(document.tokens) + DOCUMENT_BYTES for document in recent)


def _keep(db: Database, documents: Iterable[TokenDocument]) -> None:
    db.conn.executemany(
        "INSERT OR IGNORE INTO fresh VALUES (?, ?, ?)",
        [
            (one.identity, one.kind, np.asarray(one.tokens, dtype="<u4").tobytes())
            for one in documents
        ],
    )


def _write(db: Database, tier: int, built: BuiltStore, shorts: Iterable[bytes]) -> None:
    """Make `built` the content of `tier`."""
    _clear(db, tier)
    rows = ((-1 - number if tier == DELTA else number, page) for number, page in built.pages)
    db.conn.executemany("INSERT INTO pages VALUES (?, ?)", rows)
    documents = b"".join(sorted(shorts))
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
