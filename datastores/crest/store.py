"""CREST on disk: n-grams mapped to token trees, in one SQLite file for each tokenizer.

A store has two tiers. The *base* tier is what `rebuild` makes of all texts under the byte budget;
it depends on the set of texts alone. The *delta* tier is what `update` makes of the few texts added
since: an answer is drafted from as soon as it is finished, and the rebuild promotes its common
n-grams and drops its rare ones. So adding a text costs what the delta costs.

`forget` removes texts at a cost proportional to them: the delta is built again without them, and
they are subtracted from the base tier (`datastores.crest.subtraction`). No byte of them remains.
Tables that are rewritten are emptied first, which fills their pages with zeros (`secure_delete`).
Rows of the base tier are overwritten in place; they were written once in the order of their
numbers, so that none was ever moved. Then only the log has to be emptied, and nothing is copied.

Each call is one transaction, and a text counts once, by its identity, even if it is given several
times. Lookups go through `datastores.crest.reader`, on a connection of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database

from datastores.crest.build import BuiltStore, build, count, select
from datastores.crest.subtraction import BaseTier, Subtraction, drop_uses, overwrite
from datastores.crest.texts import TokenText
from datastores.storage.erasure import empty_log
from datastores.storage.schema import Schema
from datastores.storage.sqlite import Store
from datastores.tokens import unpack


def _tiers(db: Database) -> None:
    # On disk the identities of texts are called `documents`.
    # Texts keep their token ids until a rebuild takes them into the base tier, which keeps eight
    # bytes of their identity. The delta tier has its own tables, which are emptied as a whole.
    db.executescript(
        """
        CREATE TABLE tiers (
            tier INTEGER PRIMARY KEY,
            longest INTEGER NOT NULL,
            pages INTEGER NOT NULL,
            entries INTEGER NOT NULL,
            ids BLOB NOT NULL,
            documents BLOB NOT NULL,
            least INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            uses BLOB NOT NULL
        );
        CREATE TABLE pages (number INTEGER PRIMARY KEY, entries BLOB NOT NULL);
        CREATE TABLE pending (
            identity BLOB PRIMARY KEY, kind INTEGER NOT NULL, tokens BLOB NOT NULL
        ) WITHOUT ROWID;
        CREATE TABLE delta (
            longest INTEGER NOT NULL,
            pages INTEGER NOT NULL,
            entries INTEGER NOT NULL,
            ids BLOB NOT NULL
        );
        CREATE TABLE delta_pages (number INTEGER PRIMARY KEY, entries BLOB NOT NULL);
        """
    )


SCHEMA = Schema(3, _tiers, lasting=frozenset({"pages"}), cache=True)

BASE = 0
"""The number of the base tier's row in `tiers`."""
MAX_DELTA_TOKENS = 1 << 15
"""Tokens of pending texts above which a rebuild is due."""
MIN_MERGED_TOKENS = 1 << 12
MERGED_SHARE = 256
"""Pending tokens, and their share of the base tier's, from which an idle rebuild pays: it takes
them into the base tier, and adding to an emptier delta is cheaper."""
DELTA_SHARE = 8
"""The delta tier takes at most this fraction of the budget, half of it for the texts."""
TEXT_BYTES = 64
"""Size of a pending text without its tokens."""
IDENTITY_BYTES = 8
"""Size of a text's identity in the base tier."""
MIN_REBUILD_SHARE = 40
"""If more than one in this many of the base tier's tokens are removed, it is emptied and rebuilt.
Subtracting a token takes 40 times the CPU of counting it again."""
MAX_SUBTRACTED_TOKENS = 1 << 17
"""Most tokens that are subtracted: their strings take a kilobyte of memory for each token."""
MAX_FREE_SHARE = 4
"""The file is rewritten if a rebuild leaves more than one in this many of its pages free."""
ERASURE_DUE = 0x45524153
"""The file's application id from a removal until its log is emptied."""
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
        """Open or create the store; `store.quarantined` is the path of a damaged predecessor.

        Args:
            budget_bytes: maximum size of the file, at least `MIN_BUDGET_BYTES`.
        """
        opened = cls(Store(path, SCHEMA), max(budget_bytes, MIN_BUDGET_BYTES))
        # What a power failure loses is rebuilt from the texts.
        opened.store.db.conn.execute("PRAGMA synchronous = NORMAL")
        return opened

    def close(self) -> None:
        self.store.close()

    def unknown(self, identities: Iterable[bytes]) -> list[bytes]:
        """Those of `identities` that the store does not have, in order."""
        known = self._identities()
        return [identity for identity in identities if identity[:IDENTITY_BYTES] not in known]

    def size(self) -> int:
        """Bytes on disk, including the write-ahead log."""
        path = self.store.path
        files = (path, path.with_name(path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def update(self, texts: Sequence[TokenText]) -> bool:
        """Add `texts` to the delta tier, all or none; known ones change nothing.

        Returns whether they fitted. If not, `rebuild` is due.
        """
        with self.store.writing() as db:
            new = frozenset(self.unknown(text.identity for text in texts))
            pending = [text for text in texts if text.identity in new]
            if not self._fits_delta([*_read_pending(db), *pending]):
                return False
            if pending:
                _store_pending(db, pending)
                self._build_delta(db)
        return True

    def rebuild(self, texts: Iterable[TokenText]) -> None:
        """Build the base tier from `texts`, which must be all there are.

        The old tier is readable until the new one is committed. A pending text that is not among
        `texts`, since it was added meanwhile, stays pending.
        """
        prefixes: set[bytes] = set()
        built, tokens = self._built(_unique(texts, prefixes), prefixes)
        self.replace(built, prefixes, tokens)

    def _built(
        self, texts: Iterable[TokenText], prefixes: Collection[bytes]
    ) -> tuple[BuiltStore, int]:
        """The base tier of `texts`, which add to `prefixes`, and their number of tokens."""
        folder = self.store.path.parent
        counted = count(texts, self._base_bytes(0), folder=folder)
        room = self._base_bytes(len(prefixes))
        return select(counted, room, exact=True, folder=folder), counted.tokens

    def replace(self, built: BuiltStore, prefixes: Iterable[bytes], tokens: int = 0) -> None:
        """Make `built` the base tier; `prefixes` are the first bytes of its identities.

        Args:
            tokens: number of tokens of all its texts.
        """
        with self.store.writing() as db:
            known = frozenset(prefixes)
            _write_base(db, built, known, tokens)
            _keep_pending(db, lambda identity: identity[:IDENTITY_BYTES] not in known)
            self._build_delta(db)
        self._shrink()
        self._truncate_log()

    def has_pending(self) -> bool:
        """Whether a text was added since the last `rebuild`."""
        return bool(self.store.rows("SELECT 1 FROM pending LIMIT 1"))

    def merge_due(self) -> bool:
        """Whether `rebuild` pays while the user is idle."""
        pending = "SELECT coalesce(sum(length(tokens)), 0) / 4 AS n FROM pending"
        tokens = int(self.store.rows(pending)[0]["n"])
        base = int(self.store.rows("SELECT coalesce(sum(tokens), 0) AS n FROM tiers")[0]["n"])
        return tokens >= max(MIN_MERGED_TOKENS, base // MERGED_SHARE)

    def forget(self, texts: Sequence[TokenText]) -> bool:
        """Remove `texts`, given with the tokens they were added with; unknown ones are ignored.

        Returns whether `rebuild` must follow: the base tier is emptied at once if too much leaves
        it to be subtracted, or if it does not allow subtraction. No byte of the texts remains in
        the file.

        Raises:
            StoreError: also if another process reads an older state; the texts are removed, but
                the log may still hold them until this is called again.
        """
        leaving = {one.identity[:IDENTITY_BYTES]: one for one in texts}
        due = False
        with self.store.writing() as db:
            # Within the transaction, so that no text is subtracted by two processes.
            if leaving.keys() & self._identities():
                db.conn.execute(f"PRAGMA application_id = {ERASURE_DUE}")
                due = not self._leave_base(db, leaving)
                _keep_pending(db, lambda identity: identity[:IDENTITY_BYTES] not in leaving)
                self._build_delta(db)
        self._erase()
        return due

    def retain(self, identities: Iterable[bytes]) -> bool:
        """Remove all texts but `identities`; returns whether `rebuild` must follow.

        For texts whose tokens are no longer known: if the base tier holds one it is emptied at
        once, so that nothing of it is drafted until the rebuild. No byte of it remains in the file.

        Raises:
            StoreError: as `forget`.
        """
        kept = frozenset(identity[:IDENTITY_BYTES] for identity in identities)
        due = False
        if not self._identities() <= kept:
            with self.store.writing() as db:
                db.conn.execute(f"PRAGMA application_id = {ERASURE_DUE}")
                due = not self._base_identities() <= kept
                if due:
                    _clear_base(db)
                _keep_pending(db, lambda identity: identity[:IDENTITY_BYTES] in kept)
                self._build_delta(db)
        self._erase()
        return due

    def _leave_base(self, db: Database, leaving: Mapping[bytes, TokenText]) -> bool:
        """Remove texts, given by the first bytes of their identities, from the base tier.

        Returns False if it had to be emptied although it holds others.
        """
        base = self._base_identities()
        counted = [one for prefix, one in leaving.items() if prefix in base]
        if not counted or (len(counted) < len(base) and _subtract(db, counted)):
            return True
        _clear_base(db)
        return len(counted) == len(base)

    def _erase(self) -> None:
        """Empty the log, if it may still hold removed texts."""
        if self.store.rows("PRAGMA application_id")[0]["application_id"] == ERASURE_DUE:
            empty_log(self.store)
            with self.store.writing() as db:
                db.conn.execute("PRAGMA application_id = 0")

    def _shrink(self) -> None:
        """Rewrite the file if much of it is free; the order of rows is preserved."""
        free = self.store.rows("PRAGMA freelist_count")[0]["freelist_count"]
        if MAX_FREE_SHARE * free > self.store.rows("PRAGMA page_count")[0]["page_count"]:
            self.store.vacuum()

    def _identities(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT identity FROM pending")
        return self._base_identities().union(
            bytes(row["identity"])[:IDENTITY_BYTES] for row in rows
        )

    def _base_identities(self) -> frozenset[bytes]:
        rows = self.store.rows("SELECT documents FROM tiers WHERE tier = ?", (BASE,))
        blob = bytes(rows[0]["documents"]) if rows else b""
        return frozenset(np.frombuffer(blob, dtype=f"V{IDENTITY_BYTES}").tolist())

    def _base_bytes(self, texts: int) -> int:
        return self.budget_bytes - self.budget_bytes // DELTA_SHARE - IDENTITY_BYTES * texts

    def _fits_delta(self, pending: Sequence[TokenText]) -> bool:
        few = sum(len(text.tokens) for text in pending) <= MAX_DELTA_TOKENS
        return few and 2 * _pending_bytes(pending) <= self.budget_bytes // DELTA_SHARE

    def _build_delta(self, db: Database) -> None:
        """Rebuild the delta tier from the pending texts."""
        db.conn.execute("DELETE FROM delta")
        db.conn.execute("DELETE FROM delta_pages")
        pending = list(_read_pending(db))
        if pending:
            room = self.budget_bytes // DELTA_SHARE - _pending_bytes(pending)
            built = build(pending, room)
            db.conn.executemany("INSERT INTO delta_pages VALUES (?, ?)", built.pages)
            row = (built.longest, built.page_count, built.entry_count, pack_ids(built.ids))
            db.conn.execute("INSERT INTO delta VALUES (?, ?, ?, ?)", row)

    def _truncate_log(self) -> None:
        """Move the log into the file; if another connection is reading, the next call does it."""
        self.store.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _unique(texts: Iterable[TokenText], prefixes: set[bytes]) -> Iterator[TokenText]:
    """`texts` without repetitions; adds the prefix of each identity to `prefixes`."""
    for text in texts:
        prefix = text.identity[:IDENTITY_BYTES]
        if prefix not in prefixes:
            prefixes.add(prefix)
            yield text


def _read_pending(db: Database) -> Iterator[TokenText]:
    rows = db.conn.execute("SELECT identity, kind, tokens FROM pending ORDER BY identity")
    for identity, kind, tokens in rows:
        yield TokenText(identity, unpack(tokens), kind)


def _pending_bytes(pending: Sequence[TokenText]) -> int:
    return sum(4 * len(text.tokens) + TEXT_BYTES for text in pending)


def _store_pending(db: Database, texts: Iterable[TokenText]) -> None:
    db.conn.executemany(
        "INSERT OR IGNORE INTO pending VALUES (?, ?, ?)",
        [(one.identity, one.kind, np.asarray(one.tokens, dtype="<u4").tobytes()) for one in texts],
    )


def _keep_pending(db: Database, wanted: Callable[[bytes], bool]) -> None:
    """Delete the pending texts whose identity is not `wanted`, and every copy of them."""
    pending = list(_read_pending(db))
    kept = [text for text in pending if wanted(text.identity)]
    if len(kept) < len(pending):
        db.conn.execute("DELETE FROM pending")
        _store_pending(db, kept)


def _write_base(db: Database, built: BuiltStore, prefixes: Iterable[bytes], tokens: int) -> None:
    """Make `built` the base tier."""
    _clear_base(db)
    db.conn.executemany("INSERT INTO pages VALUES (?, ?)", built.pages)
    row = (
        BASE,
        built.longest,
        built.page_count,
        built.entry_count,
        pack_ids(built.ids),
        b"".join(sorted(prefixes)),
        built.least,
        tokens,
        built.uses.astype("<u4").tobytes(),
    )
    db.conn.execute("INSERT INTO tiers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _clear_base(db: Database) -> None:
    db.conn.execute("DELETE FROM pages")
    db.conn.execute("DELETE FROM tiers")


def _subtract(db: Database, texts: Sequence[TokenText]) -> bool:
    """Subtract `texts`, which the base tier contains; False if it must be rebuilt instead."""
    tokens = sum(len(text.tokens) for text in texts)
    sql = "SELECT longest, pages, least, ids, documents, tokens FROM tiers"
    longest, pages, least, ids, identities, total = db.conn.execute(sql).fetchone()
    if not least or tokens > MAX_SUBTRACTED_TOKENS or tokens * MIN_REBUILD_SHARE > total:
        return False
    subtraction = Subtraction(db, BaseTier(longest, pages, least, unpack_ids(ids)))
    subtraction.subtract(texts)
    drop_uses(db, BASE, subtraction.dropped, ids[0])
    _drop_identities(db, identities, texts)
    db.conn.execute(
        "UPDATE tiers SET entries = entries - ?, tokens = tokens - ?", (subtraction.entries, tokens)
    )
    return True


def _drop_identities(db: Database, identities: bytes, texts: Sequence[TokenText]) -> None:
    """Overwrite the identities of `texts` with that of a remaining text, which is then repeated.

    Args:
        identities: those of all texts of the base tier.
    """
    found = np.frombuffer(identities, dtype="<u8")
    wanted = [int.from_bytes(one.identity[:IDENTITY_BYTES], "little") for one in texts]
    leaving = np.isin(found, np.array(wanted, dtype=np.uint64))
    stays = found[~leaving][:1].tobytes()
    places = np.flatnonzero(leaving).tolist()
    overwrite(db, "documents", BASE, ((IDENTITY_BYTES * at, stays) for at in places))


def pack_ids(ids: NDArray[np.uint32]) -> bytes:
    """Token ids by rank, of two bytes each if that suffices, after a byte with their size."""
    width = 2 if not len(ids) or int(ids.max()) < 1 << 16 else 4
    return bytes([width]) + ids.astype(f"<u{width}").tobytes()


def unpack_ids(blob: bytes) -> list[int]:
    """The token ids in `blob`, by rank."""
    return np.frombuffer(blob, dtype=f"<u{blob[0]}", offset=1).tolist() if blob else []
