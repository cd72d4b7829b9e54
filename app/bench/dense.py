"""`specchat bench dense`: what the keys of dense drafting cost, and what the filter is worth.

A workload is answered; the states of its last answers are searched for among those of the others,
in four configurations: with the index's keys (`pca`: 64 components of 8 bits) or whole z-normed
states (`full`), and with the filter by the next token, x_{t+1}, inside the search or after it, as
in DReSD (section 3.5), on `FETCHED` neighbours.

Which kind of index to search is settled and no longer measured. 50,000 synthetic clustered keys of
64 dimensions, one busy core; recall is of the ten nearest with the right next token. Kinds that
cannot filter by the next token fetch a hundred candidates first:

    kind                                recall   ms a search   bytes a token
    one list for each next token, 8-bit   .967          .022              77
    flat, floats                          .953          .376             264
    flat, 8-bit                           .928          .603              72
    product quantisation                  .709          .868              41
    inverted file by cells                .953          .049             277
    HNSW                                  .937          .044             536

Nor does the width of the key matter on the embedded model: 32, 64 and 128 components give 3.118,
3.116 and 3.116 tokens per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import mean, median
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.bench.decode import answer_chat
from app.bench.workloads import Workload
from app.engine.engine import Engine
from datastores.dense.memory import InvertedLists
from datastores.dense.projection import EPSILON, Floats, Projection, fit
from datastores.errors import InputError
from datastores.tokens import common_prefix
from engines.sampler import Sampling
from engines.step import Context, Step

NEAREST = 10
"""Neighbours that recall is measured over."""
FETCHED = 100
"""Neighbours fetched by every search."""
QUERIES = 500
"""States that ask, at most."""
MIN_STATES = 1_000
"""Fewer states cannot fill the lists of common tokens."""
STORED = 0.75
"""Share of the states that are searched; those of the last answers ask."""
MAX_DRAFT = 20
"""Tokens of a continuation that are compared, DReSD's longest (section 5.4)."""

Rows = NDArray[np.int64]
Search = Callable[[Floats, int], Rows]
"""The nearest states to float32 [width] that led to a token, nearest first: their rows."""


class RecordedStates(NamedTuple):
    """States of answers one after the other, float32 [n, width].

    Attributes:
        tokens: [n], what the states produced.
        ends: [n], the row after the last one of the same answer.
    """

    states: Floats
    tokens: Rows
    ends: Rows

    def split(self, row: int) -> tuple[RecordedStates, RecordedStates]:
        """Those of the answers before the one of `row`, and the others."""
        start = int(self.ends[self.ends <= row].max(initial=0))
        states, tokens, ends = self
        return (
            RecordedStates(states[:start], tokens[:start], ends[:start]),
            RecordedStates(states[start:], tokens[start:], ends[start:] - start),
        )


class _Recorder:
    """Keeps the states of answers."""

    def __init__(self) -> None:
        self.answers: list[list[Step]] = []

    def begin(self, context: Context) -> None:
        self.answers.append([])

    def observe(self, step: Step) -> None:
        self.answers[-1].append(step)

    def states(self) -> RecordedStates:
        """Of all answers so far."""
        steps = [step for answer in self.answers for step in answer]
        sizes = [sum(len(step.tokens) for step in answer) for answer in self.answers]
        tokens = [token for step in steps for token in step.tokens]
        ends = np.repeat(np.cumsum(sizes), sizes)
        states = np.concatenate([step.hidden for step in steps])
        return RecordedStates(states, np.array(tokens, np.int64), ends)


def gather(engine: Engine, workload: Iterable[Workload], sampling: Sampling) -> RecordedStates:
    """The states with which the model answers chats.

    Raises:
        InputError: they are too few to search among.
    """
    recorder = _Recorder()
    observed = replace(engine, observers=[recorder])
    for chat in workload:
        answer_chat(observed, chat, (), sampling)
    recorded = recorder.states()
    if len(recorded.tokens) < MIN_STATES:
        raise InputError(
            f"the workload gives {len(recorded.tokens)} states; {MIN_STATES} are needed:"
            " use more chats"
        )
    return recorded


def compare(recorded: RecordedStates, vocabulary: int) -> list[dict[str, object]]:
    """The rows of `bench dense --json`."""
    stored, asking = recorded.split(int(len(recorded.tokens) * STORED))
    projection = fit(stored.states)
    full = make_full_search(stored, inside=True)
    rows = np.unique(np.linspace(0, len(asking.tokens) - 1, QUERIES).astype(np.int64))
    nearest = [full(asking.states[row], int(asking.tokens[row]))[:NEAREST] for row in rows]
    searches: dict[tuple[str, str], Search] = {
        ("full", "inside"): full,
        ("full", "after"): make_full_search(stored, inside=False),
        ("pca", "inside"): make_key_search(projection, stored, vocabulary, inside=True),
        ("pca", "after"): make_key_search(projection, stored, vocabulary, inside=False),
    }
    sizes = {"full": 4 * stored.states.shape[1], "pca": projection.dimensions}
    return [
        {
            "keys": keys,
            "filter": where,
            "states": len(stored.tokens),
            **_measure(search, stored, asking, rows, nearest),
            "bytes_per_key": sizes[keys],
        }
        for (keys, where), search in searches.items()
    ]


def make_full_search(stored: RecordedStates, *, inside: bool) -> Search:
    """Brute force over z-normed states of unit length."""
    mean, deviations = stored.states.mean(axis=0), stored.states.std(axis=0) + EPSILON
    keys = (stored.states - mean) / deviations
    keys /= np.linalg.norm(keys, axis=1, keepdims=True) + EPSILON

    def search(state: Floats, token: int) -> Rows:
        similarities = keys @ ((state - mean) / deviations)
        if inside:
            rows = np.flatnonzero(stored.tokens == token)
            found: Rows = rows[np.argsort(-similarities[rows], kind="stable")][:FETCHED]
            return found
        nearest = np.argsort(-similarities, kind="stable")[:FETCHED]
        fitting: Rows = nearest[stored.tokens[nearest] == token]
        return fitting

    return search


def make_key_search(
    projection: Projection, stored: RecordedStates, vocabulary: int, *, inside: bool
) -> Search:
    """The index's own search: of one list for each next token, or of one for all."""
    lists = InvertedLists(vocabulary, projection.dimensions, projection.scale)
    numbers = stored.tokens if inside else np.zeros_like(stored.tokens)
    lists.add(projection.encode(stored.states), numbers, np.arange(len(stored.tokens)))

    def search(state: Floats, token: int) -> Rows:
        nearest = lists.search(projection.query(state), token if inside else 0, FETCHED)
        found = np.array(nearest.offsets, np.int64)
        fitting: Rows = found[stored.tokens[found] == token]
        return fitting

    return search


def _measure(
    search: Search,
    stored: RecordedStates,
    asking: RecordedStates,
    rows: Rows,
    nearest: Sequence[Rows],
) -> dict[str, object]:
    """Recall of the `nearest`, the length of the drafts, and the time of a search."""
    recalls, drafts, times = [], [], []
    for row, wanted in zip(rows.tolist(), nearest, strict=True):
        started = perf_counter()
        found = search(asking.states[row], int(asking.tokens[row]))
        times.append(perf_counter() - started)
        if len(wanted):
            recalls.append(len(np.intersect1d(found[:NEAREST], wanted)) / len(wanted))
        drafts.append(_accepted(stored, int(found[0]), asking, row) if len(found) else 0)
    return {
        "recall_at_10": mean(recalls) if recalls else 1.0,
        "tokens_per_draft": mean(drafts),
        "search_ms_median": 1e3 * median(times),
    }


def _accepted(stored: RecordedStates, neighbour: int, asking: RecordedStates, row: int) -> int:
    """Tokens after the nearest neighbour that really followed."""
    draft = stored.tokens[neighbour + 1 : min(stored.ends[neighbour], neighbour + 1 + MAX_DRAFT)]
    text = asking.tokens[row + 1 : asking.ends[row]]
    return common_prefix(draft.tolist(), text.tolist())
