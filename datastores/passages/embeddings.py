"""Stored vectors of passages, of one embedding model at a time.

A vector belongs to the digest of a chunk, so that a changed text keeps the vectors of its unchanged
chunks. Removing a text erases its vectors. Vectors of another model are dropped, never mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import StoreError
from datastores.passages.chunks import HEADING_SEPARATOR
from datastores.passages.store import PassageStore

Vectors = NDArray[np.float32]

STORED = np.dtype("<f2")
"""Half precision, which changes an inner product by at most a thousandth."""
LOADED_AT_ONCE = 1 << 12
"""Vectors in a batch of rows."""


@dataclass(frozen=True, slots=True)
class UnrelatedTexts:
    """Mean and standard deviation of the inner products of unrelated texts."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Embedder:
    """The embedding model of the stored vectors.

    Attributes:
        fingerprint: fingerprint of its weights.
        path: its file when the vectors were made.
        width: dimensions of the vectors.
    """

    fingerprint: str
    path: str
    width: int
    unrelated: UnrelatedTexts


@dataclass(frozen=True, slots=True)
class UnembeddedText:
    """The text of a chunk, by the digest of the chunk."""

    digest: bytes
    text: str


class StoredVectors:
    """The vectors of one store's passages. Methods raise StoreError if it cannot be used."""

    def __init__(self, passages: PassageStore) -> None:
        self._store = passages.store

    @property
    def embedder(self) -> Embedder | None:
        """The model whose vectors are stored; None if none is bound."""
        rows = self._store.rows("SELECT * FROM embedder WHERE deviation > 0")
        return next(map(_embedder, rows), None)

    def bind(self, embedder: Embedder) -> None:
        """Store vectors of `embedder` from now on, and drop those of another model."""
        if self.embedder == embedder:
            return
        scale = embedder.unrelated
        with self._store.writing() as db:
            db.conn.execute(
                "DELETE FROM vectors"
                " WHERE NOT EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?)",
                (embedder.fingerprint,),
            )
            db.conn.execute("DELETE FROM embedder")
            db.conn.execute(
                "INSERT INTO embedder (fingerprint, path, width, mean, deviation)"
                " VALUES (?, ?, ?, ?, ?)",
                (embedder.fingerprint, embedder.path, embedder.width, scale.mean, scale.deviation),
            )

    def drop(self) -> None:
        """Delete all vectors."""
        with self._store.writing() as db:
            db.conn.execute("DELETE FROM vectors")
            db.conn.execute("DELETE FROM embedder")

    def counts(self) -> tuple[int, int]:
        """Number of distinct passages with a vector, and of all distinct passages."""
        (row,) = self._store.rows(
            "SELECT (SELECT count(*) FROM vectors) AS embedded,"
            " (SELECT count(DISTINCT digest) FROM chunks) AS total"
        )
        return row["embedded"], row["total"]

    def unembedded(self, after: bytes, limit: int) -> list[UnembeddedText]:
        """The first `limit` chunks without a vector, by digest, whose digest is above `after`."""
        sql = """
            SELECT digest, heading, content FROM chunks WHERE digest > ? AND NOT EXISTS
            (SELECT 1 FROM vectors WHERE vectors.digest = chunks.digest)
            GROUP BY digest ORDER BY digest LIMIT ?
        """
        return [
            UnembeddedText(bytes(row["digest"]), _embedded_text(row["heading"], row["content"]))
            for row in self._store.rows(sql, (after, limit))
        ]

    def add(self, embedder: Embedder, digests: Sequence[bytes], vectors: Vectors) -> None:
        """Store a row of `vectors` [n, width] for each of `digests`.

        Passages that no longer exist are left out; so are all if the model is no longer bound.
        """
        rows = vectors.astype(STORED)
        with self._store.writing() as db:
            db.conn.executemany(
                "INSERT OR IGNORE INTO vectors SELECT ?1, ?2"
                " WHERE EXISTS (SELECT 1 FROM chunks WHERE digest = ?1)"
                " AND EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?3)",
                (
                    (digest, row.tobytes(), embedder.fingerprint)
                    for digest, row in zip(digests, rows, strict=True)
                ),
            )

    def load(self, embedder: Embedder) -> tuple[NDArray[np.int64], Vectors]:
        """The ids of passages with a vector, ascending, and the vectors [n, width].

        Raises:
            StoreError: a vector is not of the model's width.
        """
        sql = "SELECT count(*) AS number FROM chunks JOIN vectors USING (digest)"
        number = int(self._store.rows(sql)[0]["number"])
        ids, vectors = np.empty(number, np.int64), np.empty((number, embedder.width), np.float32)
        done = 0
        for rows in self._batches(embedder):
            # Passages added during loading are loaded the next time.
            rows = rows[: number - done]
            here = slice(done, done + len(rows))
            ids[here] = [row["id"] for row in rows]
            vectors[here] = self._unpacked([row["vector"] for row in rows], embedder.width)
            done += len(rows)
        return ids[:done], vectors[:done]

    def _batches(self, embedder: Embedder) -> Iterator[list[dict[str, Any]]]:
        """Ids and vectors of all passages in batches: as rows they take twice the memory."""
        sql = """
            SELECT id, vector FROM chunks JOIN vectors USING (digest)
            WHERE EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?) AND id > ?
            ORDER BY id LIMIT ?
        """
        last = -1
        while rows := self._store.rows(sql, (embedder.fingerprint, last, LOADED_AT_ONCE)):
            last = rows[-1]["id"]
            yield rows

    def _unpacked(self, vectors: Sequence[bytes], width: int) -> NDArray[np.float16]:
        if any(len(vector) != width * STORED.itemsize for vector in vectors):
            raise StoreError(
                f"{self._store.path}: a vector is not of {width} dimensions:"
                " delete the file; it will be rebuilt"
            )
        return np.frombuffer(b"".join(vectors), STORED).reshape(len(vectors), width)

    def version(self) -> int:
        """A value that changes whenever another connection changes the store."""
        return int(self._store.rows("PRAGMA data_version")[0]["data_version"])


def _embedded_text(heading: str, content: str) -> str:
    """Heading and content as a sentence: models are trained on prose."""
    return f"{heading.replace(HEADING_SEPARATOR, ', ')}: {content}" if heading else content


def _embedder(row: Mapping[str, Any]) -> Embedder:
    scale = UnrelatedTexts(row["mean"], row["deviation"])
    return Embedder(row["fingerprint"], row["path"], row["width"], scale)
