"""Stored vectors of passages, of one embedding model at a time.

Vectors belong to the digest of a chunk, so that a changed text keeps those of its unchanged
chunks. Removing a text erases its vectors. Vectors of another model are dropped, never mixed.

Of a token's state one bit per dimension is kept, its sign: 48 bytes at a width of 384. With exact
states as many questions find their passage (.48 of 521 first and .68 among three both ways).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datastores.errors import StoreError
from datastores.passages.chunks import HEADING_SEPARATOR
from datastores.passages.store import PassageStore

Vectors = NDArray[np.float32]
Signs = NDArray[np.uint8]
"""The signs of token states [tokens, width], packed: uint8 [tokens, bytes], 1 for positive."""

STORED = np.dtype("<f2")
"""Half precision, which changes an inner product by at most a thousandth."""
LOADED_AT_ONCE = 1 << 12
"""Vectors in a batch of rows."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as an embedding model sees it.

    Attributes:
        vector: of the whole text, unit length, float32 [width].
        states: of its tokens, unit length, float32 [tokens, width].
    """

    vector: Vectors
    states: Vectors


@dataclass(frozen=True, slots=True)
class UnrelatedTexts:
    """Mean and standard deviation of a similarity of unrelated texts."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Embedder:
    """The embedding model of the stored vectors.

    Attributes:
        fingerprint: fingerprint of its weights.
        path: its file when the vectors were made.
        width: dimensions of the vectors.
        unrelated: inner products of the vectors of unrelated texts.
        unrelated_tokens: the same of their tokens (`engines.retrieval.late_interaction`).
    """

    fingerprint: str
    path: str
    width: int
    unrelated: UnrelatedTexts
    unrelated_tokens: UnrelatedTexts


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
        whole, tokens = embedder.unrelated, embedder.unrelated_tokens
        with self._store.writing() as db:
            db.conn.execute(
                "DELETE FROM vectors"
                " WHERE NOT EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?)",
                (embedder.fingerprint,),
            )
            db.conn.execute("DELETE FROM embedder")
            db.conn.execute(
                "INSERT INTO embedder VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(embedder.fingerprint, embedder.path, embedder.width),
                    *(whole.mean, whole.deviation, tokens.mean, tokens.deviation),
                ),
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

    def add(
        self, embedder: Embedder, digests: Sequence[bytes], encodings: Sequence[Encoding]
    ) -> None:
        """Store one of `encodings` for each of `digests`.

        Passages that no longer exist are left out; so are all if the model is no longer bound.
        """
        with self._store.writing() as db:
            for digest, one in zip(digests, encodings, strict=True):
                added = db.conn.execute(
                    "INSERT OR IGNORE INTO vectors SELECT ?1, ?2"
                    " WHERE EXISTS (SELECT 1 FROM chunks WHERE digest = ?1)"
                    " AND EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?3)",
                    (digest, one.vector.astype(STORED).tobytes(), embedder.fingerprint),
                )
                if added.rowcount:
                    signs = signs_of(one.states).tobytes()
                    db.conn.execute("INSERT INTO tokens VALUES (?, ?)", (digest, signs))

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
            raise self._damaged(width)
        return np.frombuffer(b"".join(vectors), STORED).reshape(len(vectors), width)

    def _damaged(self, width: int) -> StoreError:
        return StoreError(
            f"{self._store.path}: a vector is not of {width} dimensions:"
            " delete the file; it will be rebuilt"
        )

    def load_tokens(self, embedder: Embedder, ids: Sequence[int]) -> dict[int, Signs]:
        """Id → signs of the token states, for those of the passages `ids` that are embedded.

        Raises:
            StoreError: they are not of the model's width.
        """
        sql = """
            SELECT id, signs FROM chunks JOIN tokens USING (digest)
            WHERE id IN (SELECT value FROM json_each(?))
            AND EXISTS (SELECT 1 FROM embedder WHERE fingerprint = ?)
        """
        rows = self._store.rows(sql, (json.dumps(list(ids)), embedder.fingerprint))
        size = -(-embedder.width // 8)
        if any(len(row["signs"]) % size for row in rows):
            raise self._damaged(embedder.width)
        return {row["id"]: np.frombuffer(row["signs"], np.uint8).reshape(-1, size) for row in rows}

    def version(self) -> int:
        """A value that changes whenever another connection changes the store."""
        return int(self._store.rows("PRAGMA data_version")[0]["data_version"])


def signs_of(states: Vectors) -> Signs:
    """The signs of `states` [tokens, width], packed."""
    return np.packbits(states > 0, axis=1)


def _embedded_text(heading: str, content: str) -> str:
    """Heading and content as a sentence: models are trained on prose."""
    return f"{heading.replace(HEADING_SEPARATOR, ', ')}: {content}" if heading else content


def _embedder(row: Mapping[str, Any]) -> Embedder:
    whole = UnrelatedTexts(row["mean"], row["deviation"])
    tokens = UnrelatedTexts(row["token_mean"], row["token_deviation"])
    return Embedder(row["fingerprint"], row["path"], row["width"], whole, tokens)
