"""`specchat bench dense`: what keys and which index dense drafting should stand on.

For one kind of index over one material: mean reciprocal rank of keys asked for themselves (DReSD,
equation 4), recall against brute force, time of one search, bytes and speed of building. `recall`
is of the ten nearest among what the kind looks through: all keys, or those that led to the same
token. `filtered_recall` is of the ten nearest with the right token, which is what drafting needs:
kinds that cannot look for it fetch `FETCHED` and keep what fits, as DReSD does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from app.bench.dense_kinds import KINDS, Kind, Places
from app.bench.dense_material import Block, Material
from datastores.dense import DenseStore
from datastores.dense_codec import Projection
from datastores.dense_moments import Floats
from datastores.dense_rows import Encoded, Written

NEAREST = 10
FETCHED = 100
"""Neighbours fetched for ranks, and by kinds that filter afterwards."""
TIMED = 200
"""Searches whose time is taken."""
STORED = 60_000
"""Keys written into a store to learn what one takes on disk."""
DOCUMENT = 500
"""Tokens of a document there: a chat of a few answers."""
TOKEN = 4.0
"""Bytes of a token id, which a kind with a file of its own must keep besides."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What brute force says of a material's queries.

    Attributes:
        nearest: of each query, the ten nearest keys.
        filtered: the ten nearest that led to the query's token; fewer where there are fewer.
        tokens: the token each key led to.
    """

    nearest: list[Places]
    filtered: list[Places]
    tokens: NDArray[np.int64]


def measure(material: Material, truth: Truth, name: str) -> dict[str, object]:
    """One row of `bench dense --json`: a kind of index over some material."""
    kind = KINDS[name](material)
    seconds = _build(kind, material)
    queries = material.queries
    found, times = _search(kind, queries)
    right = [
        mine[truth.tokens[mine] == token] for mine, token in zip(found, queries.tokens, strict=True)
    ]
    key_bytes = kind.key_bytes()
    return {
        "material": material.name,
        "dims": material.dimensions,
        "norm": material.norm,
        "kind": name,
        "vectors": material.size,
        "explained": material.explained,
        "mrr": _reciprocal_rank(kind, next(material.blocks())),
        "recall_at_10": _recall(found, truth.filtered if kind.partitioned else truth.nearest),
        "filtered_recall_at_10": _recall(right, truth.filtered),
        "search_ms_median": 1e3 * median(times),
        "bytes_per_token": stored_bytes(material) if key_bytes is None else key_bytes + TOKEN,
        "build_per_second": material.size / seconds,
    }


def ground_truth(material: Material) -> Truth:
    """Compare every query with every key."""
    queries = material.queries
    nearest, filtered, tokens = _Best(len(queries.keys)), _Best(len(queries.keys)), []
    for block in material.blocks():
        similar = queries.keys @ block.keys.T
        nearest.see(similar)
        similar[queries.tokens[:, None] != block.tokens[None, :]] = -np.inf
        filtered.see(similar)
        tokens.append(block.tokens)
    return Truth(nearest.places(), filtered.places(), np.concatenate(tokens))


class _Best:
    """The best of all columns seen so far, for each row."""

    def __init__(self, rows: int) -> None:
        self._scores = np.full((rows, NEAREST), -np.inf, np.float32)
        self._places = np.full((rows, NEAREST), -1, np.int64)
        self._seen = 0

    def see(self, scores: Floats) -> None:
        """Take in float32 [rows, n], the next n columns."""
        best = np.argpartition(-scores, min(NEAREST, scores.shape[1] - 1), axis=1)[:, :NEAREST]
        joined = np.concatenate([self._scores, np.take_along_axis(scores, best, 1)], axis=1)
        places = np.concatenate([self._places, best + self._seen], axis=1)
        kept = np.argsort(-joined, axis=1, kind="stable")[:, :NEAREST]
        self._scores = np.take_along_axis(joined, kept, 1)
        self._places = np.take_along_axis(places, kept, 1)
        self._seen += scores.shape[1]

    def places(self) -> list[Places]:
        """Columns, best first; those at -inf left out."""
        pairs = zip(self._places, self._scores, strict=True)
        return [places[scores > -np.inf] for places, scores in pairs]


def stored_bytes(material: Material) -> float:
    """Bytes a token takes on disk in specchat's own store, tokens and indexes included."""
    block = next(material.blocks())
    count = min(len(block.keys), STORED)
    eye = np.eye(material.dimensions, dtype=np.float32)
    projection = Projection(np.zeros(material.dimensions, np.float32), eye, 127.0, unit=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "dense.db"
        store = DenseStore.open(path, "bench", material.dimensions)
        store.generations.begin(projection, count, 1.0)
        generation = store.generations.all()[0]
        codes = projection.encode(block.keys[:count])
        for start in range(0, count, DOCUMENT):
            stop = min(count, start + DOCUMENT)
            document = store.create_document("bench")
            places = np.arange(1, stop - start, dtype=np.int64)
            words = block.tokens[start:stop].tolist()
            keys = Encoded(document, generation.id, places, codes[start + 1 : stop])
            store.write([Written(document, 0, words)], [keys])
        keyed = store.counts(generation)[1]
        store.close()
        return path.stat().st_size / keyed


def _build(kind: Kind, material: Material) -> float:
    """Train and fill; seconds it took, without the making of the material."""
    seconds, first = 0.0, 0
    for block in material.blocks():
        started = perf_counter()
        if not first:
            kind.train(block.keys)
        kind.add(block.keys, block.tokens, first)
        seconds += perf_counter() - started
        first += len(block.keys)
    return seconds


def _search(kind: Kind, queries: Block) -> tuple[list[Places], list[float]]:
    """What each query finds, and the time of the first ones."""
    k = NEAREST if kind.partitioned else FETCHED
    found, times = [], []
    for key, token in zip(queries.keys, queries.tokens.tolist(), strict=True):
        started = perf_counter()
        found.append(kind.search(key, token, k))
        times.append(perf_counter() - started)
    return found, times[:TIMED]


def _reciprocal_rank(kind: Kind, block: Block) -> float:
    """Mean of 1 ÷ the rank at which a key finds itself; 0 beyond `FETCHED`."""
    ranks = []
    for place in range(min(len(block.keys), TIMED)):
        found = kind.search(block.keys[place], int(block.tokens[place]), FETCHED)
        where = np.flatnonzero(found == place)
        ranks.append(1.0 / (1 + int(where[0])) if len(where) else 0.0)
    return mean(ranks)


def _recall(found: list[Places], truth: list[Places]) -> float:
    """Mean share of the true nearest that were among the first ten found."""
    shares = [
        len(np.intersect1d(mine[:NEAREST], true)) / len(true)
        for mine, true in zip(found, truth, strict=True)
        if len(true)
    ]
    return mean(shares)
