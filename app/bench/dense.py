"""`specchat bench dense`: what keys and which index dense drafting should stand on.

For one kind of index over one material: mean reciprocal rank of keys asked for themselves (DReSD,
equation 4), recall against brute force, time of one search, bytes and speed of building. `recall`
is of the ten nearest among what the kind looks through: all keys, or those that led to the same
token. `filtered_recall` is of the ten nearest with the right token, which is what drafting needs:
kinds that cannot look for it fetch `FETCHED` and keep what fits, as DReSD does.

What `bench dense` measures on: states a model really had, or synthetic clustered keys for scale.

Keys come in blocks, so that ten million of them never stand in memory beside the index that is
measured.

The kinds of index that `bench dense` compares, behind one small protocol.

All but `partitioned` know nothing of tokens: they look among all keys, as DReSD does, and its
filter by x_{t+1} comes after the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from app.bench.decode import answer_chat
from app.bench.workloads import Workload
from app.engine.engine import Engine
from datastores.dense.index import FaissIndex
from datastores.dense.projection import ZERO, Floats, Moments, Projection, explained, fit
from datastores.dense.rows import Encoded, Written
from datastores.dense.store import DenseStore
from datastores.errors import InputError
from engines.sampler import Sampling
from engines.step import Context, Step

BLOCK = 1 << 16
"""Keys of one block."""
QUERIES = 500
"""Keys that are asked for, and not in the index."""
VOCABULARY = 32_000
CLUSTER = 200
"""Synthetic keys of one cluster, on average."""
SPREAD = 0.7
"""Standard deviation of a synthetic key around its cluster, where centres have 1."""
LOYALTY = 0.9
"""Share of a cluster's keys that lead to the cluster's own token."""


class StateBlock(NamedTuple):
    """Keys float32 [n, dimensions] and the tokens they led to."""

    keys: Floats
    tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BenchMaterial:
    """Keys to index, and others to ask for.

    Attributes:
        name: synthetic or model.
        size: keys to index.
        norm: none, z (before PCA), unit (after it) or both.
        explained: share of the states' variance that the keys keep.
        blocks: what is indexed; the same at every call.
        queries: what is asked for.
    """

    name: str
    size: int
    vocabulary: int
    dimensions: int
    norm: str
    explained: float
    blocks: Callable[[], Iterator[StateBlock]]
    queries: StateBlock


class States(NamedTuple):
    """States of a model float32 [n, width], shuffled, and the tokens they led to."""

    states: Floats
    tokens: NDArray[np.int64]
    vocabulary: int


def clustered(size: int, dimensions: int = 64) -> BenchMaterial:
    """Synthetic unit keys in clusters; tokens by Zipf's law, most of a cluster with the same."""
    generator = np.random.default_rng(size)
    count = max(1, size // CLUSTER)
    centres = generator.standard_normal((count, dimensions), np.float32)
    owned = _zipf(generator, count)

    def block(length: int, number: int) -> StateBlock:
        generator = np.random.default_rng([size, number])
        cluster = generator.integers(0, count, length)
        noise = generator.standard_normal((length, dimensions), np.float32)
        keys = centres[cluster] + np.float32(SPREAD) * noise
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        loyal = generator.random(length) < LOYALTY
        return StateBlock(keys, np.where(loyal, owned[cluster], _zipf(generator, length)))

    def blocks() -> Iterator[StateBlock]:
        for number, start in enumerate(range(0, size, BLOCK), start=1):
            yield block(min(BLOCK, size - start), number)

    queries = block(QUERIES, 0)
    return BenchMaterial("synthetic", size, VOCABULARY, dimensions, "both", 1.0, blocks, queries)


class StepLog:
    """An observer that keeps every step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begin(self, context: Context) -> None:
        """Nothing to do: the steps of all answers are kept."""

    def observe(self, step: Step) -> None:
        """Keep the step."""
        self.steps.append(step)


def gather(engine: Engine, workload: Iterable[Workload], sampling: Sampling) -> States:
    """The states with which the model answers chats.

    Raises:
        InputError: they are too few to hold some back as queries.
    """
    log = StepLog()
    observed = replace(engine, observers=[log])
    for chat in workload:
        answer_chat(observed, chat, (), sampling)
    states = np.concatenate([step.hidden for step in log.steps])
    tokens = np.array([token for step in log.steps for token in step.tokens], np.int64)
    if len(states) < 4 * QUERIES:
        raise InputError(
            f"the workload gives {len(states)} states; {4 * QUERIES} are needed: use more chats"
        )
    shuffled = np.random.default_rng(0).permutation(len(states))
    return States(states[shuffled], tokens[shuffled], engine.target.vocabulary_size)


def project(states: States, dimensions: int, norm: str) -> BenchMaterial:
    """Keys of `states`; the projection is fitted to all but the queries."""
    z, unit = norm in ("z", "both"), norm in ("unit", "both")
    moments = Moments(states.states.shape[1])
    moments.add(states.states[:-QUERIES])
    projection = fit(moments, dimensions, z=z, unit=unit)
    keys, size = projection.keys(states.states), len(states.states) - QUERIES

    def blocks() -> Iterator[StateBlock]:
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            yield StateBlock(keys[start:stop], states.tokens[start:stop])

    return BenchMaterial(
        "model",
        size,
        states.vocabulary,
        projection.dimensions,
        norm,
        explained(projection, moments, z=z),
        blocks,
        StateBlock(keys[size:], states.tokens[size:]),
    )


def _zipf(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Token ids, the n-th most common with a frequency of 1 ÷ n."""
    weights = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    ids: NDArray[np.int64] = np.searchsorted(weights, generator.random(count) * weights[-1])
    return ids


TRAINED = 40
"""Keys that a cell is trained on, which faiss wants at least; it is trained on the first block."""
Places = NDArray[np.int64]


class Kind(Protocol):
    """An index of one kind, being filled or asked. Keys are known by their order."""

    partitioned: bool

    def train(self, keys: Floats) -> None:
        """Learn from a sample what has to be learnt."""
        ...

    def add(self, keys: Floats, tokens: NDArray[np.int64], first: int) -> None:
        """Take in keys, which are numbered from `first` on."""
        ...

    def search(self, key: Floats, token: int, k: int) -> Places:
        """The `k` nearest to float32 [dimensions], nearest first; fewer where there are fewer."""
        ...

    def key_bytes(self) -> float | None:
        """Bytes a key takes in the index's file; None where it has no file."""
        ...


class Faiss:
    """Any index of faiss by its factory's name, under the inner product."""

    partitioned = False

    def __init__(self, dimensions: int, description: str, probes: int = 0) -> None:
        self._index: Any = faiss.index_factory(dimensions, description, faiss.METRIC_INNER_PRODUCT)
        if probes:
            faiss.extract_index_ivf(self._index).nprobe = probes

    def train(self, keys: Floats) -> None:
        self._index.train(keys)

    def add(self, keys: Floats, tokens: NDArray[np.int64], first: int) -> None:
        self._index.add(keys)

    def search(self, key: Floats, token: int, k: int) -> Places:
        _, places = self._index.search(key[None], k)
        found: Places = places[0][places[0] >= 0]
        return found

    def key_bytes(self) -> float | None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "index.faiss"
            faiss.write_index(self._index, str(path))
            return path.stat().st_size / max(1, int(self._index.ntotal))


class Partitioned:
    """specchat's own: one list of 8-bit keys for each next token, scanned whole."""

    partitioned = True

    def __init__(self, dimensions: int, vocabulary: int) -> None:
        self._dimensions, self._vocabulary = dimensions, vocabulary
        self._scale = 127.0
        self._index = FaissIndex(vocabulary, dimensions, self._scale)

    def train(self, keys: Floats) -> None:
        self._scale = 127.0 / max(1e-6, float(np.abs(keys).max()))
        self._index = FaissIndex(self._vocabulary, self._dimensions, self._scale)

    def add(self, keys: Floats, tokens: NDArray[np.int64], first: int) -> None:
        places = np.arange(first, first + len(keys), dtype=np.int64)
        self._index.add(self._codes(keys), tokens, places)

    def search(self, key: Floats, token: int, k: int) -> Places:
        return self._index.search(
            key * np.float32(self._scale) + np.float32(ZERO), token, k
        ).positions

    def key_bytes(self) -> float | None:
        return None

    def _codes(self, keys: Floats) -> NDArray[np.uint8]:
        rounded = np.rint(keys * self._scale).clip(-127.0, 127.0) + ZERO
        codes: NDArray[np.uint8] = rounded.astype(np.uint8)
        return codes


def _cells(material: BenchMaterial) -> int:
    """Cells of an inverted file: four times the square root of the keys, as faiss advises, or as
    many as a block can train."""
    return max(1, min(4 * int(material.size**0.5), min(material.size, BLOCK) // TRAINED))


KINDS: dict[str, Callable[[BenchMaterial], Kind]] = {
    "flat": lambda m: Faiss(m.dimensions, "Flat"),
    "sq": lambda m: Faiss(m.dimensions, "SQ8"),
    "pq": lambda m: Faiss(m.dimensions, f"PQ{m.dimensions // 2}x8"),
    "ivf": lambda m: Faiss(m.dimensions, f"IVF{_cells(m)},Flat", 16),
    "hnsw": lambda m: Faiss(m.dimensions, "HNSW32,Flat"),
    "partitioned": lambda m: Partitioned(m.dimensions, m.vocabulary),
}
"""How each kind is made for some material."""


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


def measure(material: BenchMaterial, truth: Truth, name: str) -> dict[str, object]:
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


def ground_truth(material: BenchMaterial) -> Truth:
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


def stored_bytes(material: BenchMaterial) -> float:
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


def _build(kind: Kind, material: BenchMaterial) -> float:
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


def _search(kind: Kind, queries: StateBlock) -> tuple[list[Places], list[float]]:
    """What each query finds, and the time of the first ones."""
    k = NEAREST if kind.partitioned else FETCHED
    found, times = [], []
    for key, token in zip(queries.keys, queries.tokens.tolist(), strict=True):
        started = perf_counter()
        found.append(kind.search(key, token, k))
        times.append(perf_counter() - started)
    return found, times[:TIMED]


def _reciprocal_rank(kind: Kind, block: StateBlock) -> float:
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
