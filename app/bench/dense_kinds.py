"""The kinds of index that `bench dense` compares, behind one small protocol.

All but `partitioned` know nothing of tokens: they look among all keys, as DReSD does, and its
filter by x_{t+1} comes after the search.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from app.bench.dense_material import BLOCK, Material
from datastores.dense_codec import ZERO
from datastores.dense_index import FaissIndex
from datastores.dense_moments import Floats

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


def _cells(material: Material) -> int:
    """Cells of an inverted file: four times the square root of the keys, as faiss advises, or as
    many as a block can train."""
    return max(1, min(4 * int(material.size**0.5), min(material.size, BLOCK) // TRAINED))


KINDS: dict[str, Callable[[Material], Kind]] = {
    "flat": lambda m: Faiss(m.dimensions, "Flat"),
    "sq": lambda m: Faiss(m.dimensions, "SQ8"),
    "pq": lambda m: Faiss(m.dimensions, f"PQ{m.dimensions // 2}x8"),
    "ivf": lambda m: Faiss(m.dimensions, f"IVF{_cells(m)},Flat", 16),
    "hnsw": lambda m: Faiss(m.dimensions, "HNSW32,Flat"),
    "partitioned": lambda m: Partitioned(m.dimensions, m.vocabulary),
}
"""How each kind is made for some material."""
