"""What `bench dense` measures on: states a model really had, or synthetic clustered keys for scale.

Keys come in blocks, so that ten million of them never stand in memory beside the index that is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.bench.decode import answer_chat
from app.bench.workload import Workload
from app.engine import Engine
from datastores.dense_codec import explained, fit
from datastores.dense_moments import Floats, Moments
from datastores.errors import InputError
from engines.sampler import Sampling
from engines.step import Step

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


class Block(NamedTuple):
    """Keys float32 [n, dimensions] and the tokens they led to."""

    keys: Floats
    tokens: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Material:
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
    blocks: Callable[[], Iterator[Block]]
    queries: Block


class States(NamedTuple):
    """States of a model float32 [n, width], shuffled, and the tokens they led to."""

    states: Floats
    tokens: NDArray[np.int64]
    vocabulary: int


def clustered(size: int, dimensions: int = 64) -> Material:
    """Synthetic unit keys in clusters; tokens by Zipf's law, most of a cluster with the same."""
    generator = np.random.default_rng(size)
    count = max(1, size // CLUSTER)
    centres = generator.standard_normal((count, dimensions), np.float32)
    owned = _zipf(generator, count)

    def block(length: int, number: int) -> Block:
        generator = np.random.default_rng([size, number])
        cluster = generator.integers(0, count, length)
        noise = generator.standard_normal((length, dimensions), np.float32)
        keys = centres[cluster] + np.float32(SPREAD) * noise
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        loyal = generator.random(length) < LOYALTY
        return Block(keys, np.where(loyal, owned[cluster], _zipf(generator, length)))

    def blocks() -> Iterator[Block]:
        for number, start in enumerate(range(0, size, BLOCK), start=1):
            yield block(min(BLOCK, size - start), number)

    queries = block(QUERIES, 0)
    return Material("synthetic", size, VOCABULARY, dimensions, "both", 1.0, blocks, queries)


def gather(engine: Engine, workload: Iterable[Workload], sampling: Sampling) -> States:
    """The states with which the model answers chats.

    Raises:
        InputError: they are too few to hold some back as queries.
    """
    steps: list[Step] = []
    listening = replace(engine, observers=[steps.append])
    for chat in workload:
        answer_chat(listening, chat, (), sampling)
    states = np.concatenate([step.hidden for step in steps])
    tokens = np.array([token for step in steps for token in step.tokens], np.int64)
    if len(states) < 4 * QUERIES:
        raise InputError(
            f"the workload gives {len(states)} states; {4 * QUERIES} are needed: use more chats"
        )
    shuffled = np.random.default_rng(0).permutation(len(states))
    return States(states[shuffled], tokens[shuffled], engine.target.vocabulary_size)


def project(states: States, dimensions: int, norm: str) -> Material:
    """Keys of `states`; the projection is fitted to all but the queries."""
    z, unit = norm in ("z", "both"), norm in ("unit", "both")
    moments = Moments(states.states.shape[1])
    moments.add(states.states[:-QUERIES])
    projection = fit(moments, dimensions, z=z, unit=unit)
    keys, size = projection.keys(states.states), len(states.states) - QUERIES

    def blocks() -> Iterator[Block]:
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            yield Block(keys[start:stop], states.tokens[start:stop])

    return Material(
        "model",
        size,
        states.vocabulary,
        projection.dimensions,
        norm,
        explained(projection, moments, z=z),
        blocks,
        Block(keys[size:], states.tokens[size:]),
    )


def _zipf(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Token ids, the n-th most common with a frequency of 1 ÷ n."""
    weights = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    ids: NDArray[np.int64] = np.searchsorted(weights, generator.random(count) * weights[-1])
    return ids
