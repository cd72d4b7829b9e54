"""`python -m app.bench ralm --knn`: KNN-LM sequential against speculative (RaLMSpec, figure 5).

Every method answers every question, one right after the other in rotating order, with the end token
suppressed; speed-ups are paired with the sequential one of the same k, without drafts. The
datastore holds the model's states in the texts; further random keys make the search as slow as one
likes, and are rarely near.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from app.bench.ralm import NO_END, RalmAnswer, RalmRow
from app.bench.ralm_corpus import read_texts
from app.bench.ralm_tables import SEQUENTIAL, RalmMethod
from app.engine.engine import Engine
from datastores.dense.flat_keys import FlatKeys, Rows, Tokens
from datastores.dense.projection import Codes, Floats, Projection, fit
from datastores.errors import InputError
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.ralm.events import RalmStatistics
from engines.ralm.knn_lm import InterpolatedTarget, Interpolation, write_sequentially
from engines.ralm.knn_speculative import PRIOR_ACCURACY, SpeculativeKnn
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.retrieval.exact import ExactSearch
from engines.retrieval.vectors import HNSW_LINKS
from engines.sampler import make_sampler
from engines.state_encoding import InPlace
from engines.step import Step

NEIGHBOURS = (1, 16, 256, 1024)
METHODS = (
    SEQUENTIAL,
    RalmMethod(stride=3),
    RalmMethod(stride=5),
    RalmMethod(stride=0, prior_accuracy=PRIOR_ACCURACY),
)
"""As in figure 5: the sequential one, two fixed strides, OS3."""
MAX_STATES = 20_000
"""Most states of the texts; the rest are random keys."""
RANDOM_LENGTH = 2.0
"""Length of the random keys; those of states have 1. Of unit length, one of 200,000 would be the
nearest at a third of an answer's tokens, and no cache could guess them, as none follows another."""
BLOCK = 256
"""Tokens of a text that are read, from an empty context."""


@dataclass(slots=True)
class KnnRow(RalmRow):
    """One method with one k and one set of drafters; every answer has a scheduler of its own, as in
    the app."""

    neighbours: int = 0


class NearestCodes:
    """Searches codes by squared distance, exactly, in one pass for a batch of queries.

    The nearest x to q has the largest q·x - |x|²/2: whole numbers and halves, without rounding.
    """

    def __init__(self, codes: Codes) -> None:
        self._vectors = np.empty((len(codes), codes.shape[1] + 1), np.float32)
        self._vectors[:, :-1] = codes
        self._vectors[:, -1] = np.einsum("nd,nd->n", codes, codes, dtype=np.float32) / -2
        self._search = ExactSearch(self._vectors)

    def search(self, keys: Floats, k: int) -> tuple[Floats, Rows]:
        """Distances and rows [q, k], nearest first, ties by row."""
        asked = np.hstack([keys, np.ones((len(keys), 1), np.float32)])
        nearest = map(self._nearest, asked, self._search.search(asked, k))
        distances, rows = zip(*((near[:k], found[:k]) for near, found in nearest), strict=True)
        return np.stack(distances), np.stack(rows)

    def _nearest(self, key: Floats, rows: Rows) -> tuple[Floats, Rows]:
        products = np.einsum("nd,d->n", self._vectors[rows], key)
        distances = key[:-1] @ key[:-1] - 2 * products
        order = np.lexsort((rows, distances))
        return distances[order], rows[order]


def read_states(engine: Engine, texts: Path, size: int, *, approximate: bool) -> FlatKeys:
    """The model's states in the files in `texts`, and random keys up to `size`.

    Args:
        approximate: search an HNSW graph instead of all keys.

    Raises:
        InputError: there are no files with text.
    """
    read: list[Floats] = []
    tokens: list[int] = []
    encoder = InPlace(engine.target)
    for content in read_texts(texts).values():
        text = engine.vocabulary.encode(content)[:BLOCK]
        if len(tokens) < MAX_STATES and len(text) > 1:
            rows = min(encoder.max_rows, BLOCK)
            for start in range(0, len(text) - 1, rows):
                read.append(
                    encoder.read(text[start : start + rows][: len(text) - 1 - start], start)
                )
            tokens += text[1:]
    if not tokens:
        raise InputError(f"{texts} holds too little text: name a folder with more")
    states = np.concatenate(read)
    projection = fit(states)
    filler = max(size - len(states), 0)
    random = np.random.default_rng(0)
    led_to = np.concatenate([tokens, random.integers(0, engine.target.vocabulary_size, filler)])
    codes = np.concatenate([projection.encode(states), _random_codes(projection, filler)])
    return FlatKeys(
        projection,
        codes,
        np.arange(len(codes)),
        _lookup(led_to.astype(np.int32)),
        _graph if approximate else NearestCodes,
    )


def answer(row: KnnRow, states: FlatKeys, question: str, tokens: int) -> RalmAnswer:
    """Answer `question` in `tokens` tokens."""
    engine, statistics = row.engine, RalmStatistics()
    row.scheduler = row.method.scheduler()
    prompt = engine.render([Message("user", question)])
    draw, temperature = make_sampler(engine.defaults.sampling), engine.defaults.sampling.temperature
    stop = StopCriteria(NO_END, tokens)
    request = RalmRequest(lambda _: prompt, lambda _: "", draw, stop, temperature)
    with engine.busy:
        engine.target.rewind(0)
        started, cpu = perf_counter(), process_time()
        with closing(_steps(row, states, request, statistics)) as steps:
            written = tuple(token for step in steps for token in step.tokens)
        seconds, cpu_seconds = perf_counter() - started, process_time() - cpu
    return RalmAnswer(written, (), seconds, cpu_seconds, statistics)


def _steps(
    row: KnnRow, states: FlatKeys, request: RalmRequest, statistics: RalmStatistics
) -> Generator[Step]:
    engine, speculates = row.engine, row.method.speculates
    interpolation = Interpolation(neighbours=row.neighbours)
    target = InterpolatedTarget(engine.target, states, interpolation)
    writer = StrideWriter(target, engine.drafters, engine.budget, request, across=True)
    if not speculates:
        return write_sequentially(writer, target, statistics)
    return SpeculativeKnn(
        writer, target, states, interpolation, request, row.scheduler, statistics
    ).write()


def _lookup(led_to: Tokens) -> Callable[[Rows], Tokens]:
    return lambda where: led_to[where]


def _random_codes(projection: Projection, count: int) -> Codes:
    """Codes of keys in random directions."""
    random = np.random.default_rng(1)
    drawn = random.standard_normal((count, projection.dimensions), np.float32)
    drawn *= RANDOM_LENGTH * projection.scale / np.linalg.norm(drawn, axis=1, keepdims=True)
    codes: Codes = (np.rint(drawn).clip(-127, 127) + 128).astype(np.uint8)
    return codes


def _graph(codes: Codes) -> Any:
    """The paper's approximate retriever; the reach is the largest k."""
    import faiss

    index = faiss.IndexHNSWFlat(codes.shape[1], HNSW_LINKS, faiss.METRIC_L2)
    index.hnsw.efSearch = max(NEIGHBOURS)
    index.add(codes.astype(np.float32))
    return index
