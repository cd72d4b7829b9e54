"""The dense index on disk: token streams and the keys of their positions. SQLite is its only truth.

One file for each model: hidden states of one model mean nothing to another. A *document* is a
sequence of token ids as they stood in the model's context; the key of position p stands for the
state that produced token p, so position 0 has none. Keys belong to a *generation*, which holds the
projection they were made with.

There are no index files: a faiss index of ten million keys is filled from here in seconds, so
nothing can be stale or damaged, and the disk holds every key once.

Owns documents, keys and moments. Refuses to know threads, models and what is worth encoding.

Forgetting sources in a dense index that nobody has open: no model, faiss or thread is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.generations import Generation, Generations
from datastores.dense.projection import Codes, Moments, unpack_moments
from datastores.dense.rows import DENSE, KEYS, Encoded, Written, expand, write_keys, write_tokens
from datastores.errors import StoreError
from datastores.storage.erasure import erase_requested, request_erasure
from datastores.storage.integrity import (
    damage_error,
    translate_errors,
    verify_checksum,
    with_checksum,
)
from datastores.storage.sqlite import Store
from datastores.tokens import unpack


def retain(path: Path, prefixes: tuple[str, ...], wanted: Collection[str]) -> None:
    """Leave no byte of sources that begin with one of `prefixes` and are not `wanted`.

    A damaged index that was set aside is deleted: it may hold them, and its states can be made
    again.

    Raises:
        StoreError: the index cannot be written, or another process keeps an older state of it;
            calling this again finishes the work.
    """
    with closing(Store(path, DENSE)) as store:
        with store.writing() as db:
            sources = {row["source"] for row in db.query("SELECT DISTINCT source FROM documents")}
            gone = [one for one in sources if one.startswith(prefixes) and one not in wanted]
            if gone:
                db.conn.executemany(
                    "DELETE FROM documents WHERE source = ?", [(source,) for source in gone]
                )
                request_erasure(db)
        erase_requested(store)
    for part in path.parent.glob(f"{path.name}.corrupt-*"):
        part.unlink()


READ = 4096
"""Rows fetched at a time while loading: four megabytes of keys."""


class KeyBatch(NamedTuple):
    """Many keys at once: the document, position and code of each."""

    documents: NDArray[np.int64]
    positions: NDArray[np.int64]
    codes: Codes


class DenseStore:
    """The token streams and keys of one model; one thread uses it at a time.

    Every method raises StoreError where the file cannot be read or written.
    """

    def __init__(self, store: Store, fingerprint: str, width: int) -> None:
        """Take `store` for the model of `fingerprint`, whose states are `width` long.

        Raises:
            StoreError: it belongs to another model.
        """
        self.store = store
        self.fingerprint = fingerprint
        self.width = width
        self.generations = Generations(store, fingerprint)
        self._claim()

    @classmethod
    def open(cls, path: Path, fingerprint: str, width: int) -> DenseStore:
        """Open or create; `store.quarantined` tells where a damaged predecessor was moved to."""
        opened = cls(Store(path, DENSE), fingerprint, width)
        opened.generations.drop_damaged(width)
        erase_requested(opened.store)
        return opened

    def close(self) -> None:
        self.store.close()

    def create_document(self, source: str, first: int = 1) -> int:
        """The id of a new, empty document.

        Args:
            source: what `forget` will know it by.
            first: the first position that wants a key; what comes before is context only, which
                another document holds already.
        """
        with self.store.writing() as db:
            sql = "INSERT INTO documents (source, first, length) VALUES (?, ?, 0)"
            return int(db.conn.execute(sql, (source, max(1, first))).lastrowid or 0)

    def add_documents(
        self, source: str, texts: Sequence[Sequence[int]], first: int = 1
    ) -> list[int]:
        """Documents of `texts` under one source, all or none; their ids. See `create_document`."""
        sql = "INSERT INTO documents (source, first, length) VALUES (?, ?, 0)"
        with self.store.writing() as db:
            ids = [int(db.conn.execute(sql, (source, max(1, first))).lastrowid or 0) for _ in texts]
            for document, tokens in zip(ids, texts, strict=True):
                write_tokens(db, Written(document, 0, tokens))
        return ids

    def write(self, tokens: Sequence[Written], keys: Sequence[Encoded] = ()) -> None:
        """Write tokens and keys, all or nothing; see `datastores.dense.rows`."""
        with self.store.writing() as db:
            for written in tokens:
                write_tokens(db, written)
            for encoded in keys:
                write_keys(db, encoded)

    def forget(self, source: str) -> list[int]:
        """Delete the documents of `source`, so that no byte of them stays; their ids."""
        with self.store.writing() as db:
            rows = db.query("SELECT id FROM documents WHERE source = ?", [source])
            gone = [int(row["id"]) for row in rows]
            db.conn.execute("DELETE FROM documents WHERE source = ?", (source,))
            request_erasure(db)
        erase_requested(self.store)
        return gone

    def tokens(self, document: int) -> tuple[int, ...]:
        """The token ids of a document; none where it is gone."""
        sql = "SELECT CAST(tokens AS BLOB) AS part FROM spans WHERE document = ? ORDER BY block"
        return unpack(self._joined(row["part"] for row in self.store.rows(sql, (document,))))

    def documents(self) -> set[int]:
        """The ids of all documents."""
        return {row["id"] for row in self.store.rows("SELECT id FROM documents")}

    def deletions(self) -> int:
        """Grows whenever documents are deleted, by any process."""
        rows = self.store.rows("SELECT seq FROM sqlite_sequence WHERE name = 'erasures'")
        return int(rows[0]["seq"]) if rows else 0

    def sources(self, prefix: str) -> set[str]:
        """What begins with `prefix`, of what documents are known by."""
        rows = self.store.rows("SELECT DISTINCT source FROM documents")
        return {row["source"] for row in rows if row["source"].startswith(prefix)}

    def latest(self, source: str) -> list[int]:
        """The token ids of the last document of `source`; none where there is none."""
        sql = "SELECT max(id) AS id FROM documents WHERE source = ?"
        return list(self.tokens(self.store.rows(sql, (source,))[0]["id"] or 0))

    def missing(self, document: int, generation: Generation | None) -> NDArray[np.int64]:
        """Positions of a document that want a key in `generation` and have none, ascending."""
        number = generation.id if generation else 0
        sql = "SELECT block, present FROM keys WHERE document = ? AND generation = ?"
        rows = self.store.rows(sql, (document, number))
        starts = np.array([row["block"] * KEYS for row in rows], np.int64)
        _, found = expand(starts, np.array([row["present"] for row in rows], np.int64))
        sql = "SELECT first, length FROM documents WHERE id = ?"
        wanted = [range(row["first"], row["length"]) for row in self.store.rows(sql, (document,))]
        return np.setdiff1d(np.array([p for part in wanted for p in part], np.int64), found)

    def unfinished(self, generation: Generation | None) -> list[int]:
        """Documents with positions that want a key in `generation` and have none, oldest first."""
        sql = """
            SELECT id FROM documents LEFT JOIN coverage ON document = id AND generation = ?
            WHERE coalesce(keys, 0) < length - first ORDER BY id
            """
        rows = self.store.rows(sql, (generation.id if generation else 0,))
        return [row["id"] for row in rows]

    def counts(self, generation: Generation | None) -> tuple[int, int]:
        """How many positions want a key, and how many have one in `generation`."""
        wanted = "SELECT sum(length - first) AS n FROM documents WHERE length > first"
        found = "SELECT sum(keys) AS n FROM coverage WHERE generation = ?"
        number = generation.id if generation else 0
        totals = [*self.store.rows(wanted), *self.store.rows(found, (number,))]
        return int(totals[0]["n"] or 0), int(totals[1]["n"] or 0)

    def streams(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Every document with its token ids, in order of ids."""
        sql = "SELECT document, CAST(tokens AS BLOB) FROM spans ORDER BY document, block"
        document, parts = 0, list[bytes]()
        for owner, tokens in self._each(sql):
            if owner != document and parts:
                yield document, np.frombuffer(self._joined(parts), "<i4")
                parts = []
            document = owner
            parts.append(tokens)
        if parts:
            yield document, np.frombuffer(self._joined(parts), "<i4")

    def keys(self, generation: Generation) -> Iterator[KeyBatch]:
        """Every key of a generation, in no particular order."""
        sql = """
            SELECT document, block, present, CAST(codes AS BLOB) FROM keys WHERE generation = ?
            """
        rows = self._each(sql, generation.id)
        while batch := [row for _, row in zip(range(READ), rows, strict=False)]:
            documents = np.array([row[0] for row in batch], np.int64)
            starts = np.array([row[1] * KEYS for row in batch], np.int64)
            owners, positions = expand(starts, np.array([row[2] for row in batch], np.int64))
            joined, size = b"".join(row[3] for row in batch), generation.projection.dimensions
            if len(joined) != len(positions) * size:
                raise damage_error(self.store.path, "keys without places")
            codes = np.frombuffer(joined, np.uint8).reshape(-1, size)
            yield KeyBatch(documents[owners], positions, codes)

    def moments(self) -> Moments:
        """The moments kept last; fresh ones where there are none, or they are damaged or another
        model's."""
        for row in self.store.rows("SELECT packed FROM moments"):
            try:
                kept = unpack_moments(verify_checksum(self.fingerprint, row["packed"]))
            except ValueError:
                break
            if kept.width == self.width:
                return kept
        return Moments(self.width)

    def keep_moments(self, moments: Moments) -> None:
        """Keep them for the next opening."""
        packed = with_checksum(self.fingerprint, moments.pack())
        with self.store.writing() as db:
            db.table("moments").insert({"id": 1, "packed": packed}, replace=True)

    def _claim(self) -> None:
        with self.store.writing() as db:
            owner = {"fingerprint": self.fingerprint, "width": self.width}
            if not db.table("model").count:
                db.table("model").insert(owner)
            if next(db.table("model").rows) != owner:
                raise StoreError(
                    f"{self.store.path} is the dense index of another model; move it away"
                )

    def _joined(self, parts: Iterable[bytes]) -> bytes:
        """The blocks of one document."""
        whole = b"".join(parts)
        if len(whole) % 4:
            raise damage_error(self.store.path, "part of a token")
        return whole

    def _each(self, sql: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        """Row after row, without holding them all."""
        with translate_errors(self.store.path):
            yield from self.store.db.conn.execute(sql, parameters)
