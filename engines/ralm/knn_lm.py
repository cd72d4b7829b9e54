"""KNN-LM: the next token is drawn from the model and from the tokens that followed similar states.

    p(token) = (1 − λ) · p_model(token) + λ · p_neighbours(token)
    p_neighbours(token) ∝ Σ exp(−d² / T)   over the neighbours that led to `token`

The neighbours are the k past states nearest to the current one (Khandelwal et al. 2020, equations 2
and 3). This changes the answer: it is worded like the texts whose states are searched.

`InterpolatedTarget` is an ordinary target, so the decode loop drafts, verifies and draws from this
distribution without knowing of retrieval: one pass yields the states of all rows, and one batched
search serves all rows of a draft tree. `knn_speculative` decides when to postpone searches.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from time import perf_counter
from typing import Protocol

import numpy as np

from datastores.dense.flat_keys import Rows, StateMatches
from engines.draft_tree import DraftTree
from engines.ralm.contributions import NOT_MIXED, Contributions, MixedRow
from engines.ralm.events import RalmStatistics
from engines.ralm.sequential import record_writing
from engines.ralm.stride_writer import StrideWriter
from engines.step import Step
from engines.target import Floats, ForwardOutput, Target
from engines.wrapped_target import WrappedTarget


class StateIndex(Protocol):
    """Finds the nearest past states. A distance depends on the two keys alone, not on the batch or
    on the other states."""

    def __len__(self) -> int: ...

    def search(self, keys: Floats, k: int) -> list[StateMatches]:
        """The up to `k` nearest states for each of `keys` [q, dimensions]."""
        ...


class StateDatastore(StateIndex, Protocol):
    """All past states, in rows ordered like the tokens of their texts."""

    def encode(self, state: Floats) -> Floats:
        """The key of a state: float32 [width] → float32 [dimensions]."""
        ...

    def subset(self, rows: Rows) -> StateIndex:
        """An index of only the states of `rows`, which ascend."""
        ...

    def following(self, rows: Rows, count: int) -> Rows:
        """The up to `count` rows after each of `rows` within its text."""
        ...


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How the two distributions are combined.

    Attributes:
        weight: λ, the neighbours' share of the distribution, in [0, 1).
        temperature: T, the divisor of squared distances between keys of unit length.
        neighbours: k.

    The defaults have the lowest held-out perplexity over both kinds of text. Measured with the
    embedded model and 220 imported tldr pages (50,000 states), on 60 other pages and on answers
    about imported ones; k = 1,024 unless stated, λ and T chosen on one half, measured on the other:

                                         other pages   answers
        the model alone                         71.2       9.7
        λ = 0.3, T = 0.1                        27.0       6.7
        λ = 0.3, T = 0.05                       32.3       6.4
        λ = 0.5, T = 0.1                        26.6       7.3
        the best λ and T of each                26.6       6.4
            k = 256                             31.5       6.6
            k = 64                              36.3       7.0
            k = 8                               45.3       7.6
            k = 1                               55.5       8.6
            keys not rounded to 8 bits          26.6       6.4
            full states, not PCA-64             25.4       5.4
            full states, k = 64                 35.0       4.7
    """

    weight: float = 0.3
    temperature: float = 0.1
    neighbours: int = 1024

    def apply(self, row: Floats, matches: StateMatches) -> MixedRow:
        """Interpolate the logits float32 [vocabulary] of `row` in place.

        Logits are relative, so only those of tokens that a neighbour led to change.
        """
        if not len(matches.tokens) or not self.weight:
            return NOT_MIXED
        nearness = np.exp((matches.distances[0] - matches.distances) / self.temperature)
        tokens, places = np.unique(matches.tokens, return_inverse=True)
        shares = np.bincount(places, weights=nearness) / nearness.sum()
        peak = row.max()
        total = float(peak) + log(float(np.exp(row - peak).sum(dtype=np.float64)))
        added = np.log(shares) + (total + log(self.weight / (1.0 - self.weight)))
        row[tokens] = np.logaddexp(row[tokens], added)
        return MixedRow(matches.rows, nearness, places, tokens, added - row[tokens])


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row that a token was drawn from.

    Attributes:
        logits: the model's, float32 [vocabulary].
        key: of its state.
        mixed: what the neighbours added.
    """

    logits: Floats
    key: Floats
    mixed: MixedRow


class InterpolatedTarget(WrappedTarget):
    """A target with KNN-LM's distribution.

    Attributes:
        index: the states that are searched.
        contributions: of the datastore's states to the answer, as its writer records them.
        encoding_s: seconds spent encoding states and interpolating.
        search_s: seconds spent searching.
        searches: number of searches.
        queries: their total number of queries.
    """

    def __init__(
        self, target: Target, datastore: StateDatastore, interpolation: Interpolation
    ) -> None:
        super().__init__(target)
        self.index: StateIndex = datastore
        self.contributions = Contributions()
        self.encoding_s = self.search_s = 0.0
        self.searches = self.queries = 0
        self._datastore = datastore
        self._interpolation = interpolation
        self._last_row: ForwardOutput | None = None
        self._verified: list[DrawnRow] = []  # that a token may be drawn from; not yet copied
        self._drawn: list[DrawnRow] = []

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        self._last_row = None
        yield from super().prefill(tokens)

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`."""
        if self._last_row is None:
            self._last_row, rows = self._interpolated(super().last_row)
            self._keep(rows)
        return self._last_row

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`."""
        interpolated, self._verified = self._interpolated(super().verify(tree))
        return interpolated

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`."""
        if self._verified:
            self._keep([self._verified[row] for row in path])
            self._verified = []
        super().commit(path)

    def rewind(self, length: int) -> None:
        """See `Target.rewind`."""
        self._last_row = None
        super().rewind(length)

    def take_drawn(self) -> list[DrawnRow]:
        """The rows of the tokens drawn since the last call."""
        drawn, self._drawn = self._drawn, []
        return drawn

    def record_drawn(self, tokens: Sequence[int]) -> None:
        """Record what contributed to `tokens`, those drawn since the last `take_drawn`."""
        for row, token in zip(self.take_drawn(), tokens, strict=True):
            self.contributions.add(row.mixed, token)

    def _keep(self, rows: Sequence[DrawnRow]) -> None:
        # The next pass overwrites the model's logits.
        self._drawn += [replace(row, logits=row.logits.copy()) for row in rows]

    def _interpolated(self, rows: ForwardOutput) -> tuple[ForwardOutput, list[DrawnRow]]:
        """The rows with interpolated logits, and with those of the model.

        States are encoded one by one: a matrix product's result depends on its number of rows.
        """
        started = perf_counter()
        keys = np.stack([self._datastore.encode(state) for state in rows.hidden])
        searching = perf_counter()
        found = self.index.search(keys, self._interpolation.neighbours)
        searched = perf_counter()
        logits = rows.logits.copy()
        mixed = map(self._interpolation.apply, logits, found)
        drawn = list(map(DrawnRow, rows.logits, keys, mixed))
        self.searches += 1
        self.queries += len(keys)
        self.search_s += searched - searching
        self.encoding_s += searching - started + perf_counter() - searched
        return ForwardOutput(logits, rows.hidden), drawn


def write_sequentially(
    writer: StrideWriter, target: InterpolatedTarget, statistics: RalmStatistics
) -> Generator[Step]:
    """Answer with one search per forward pass, the baseline of `knn_speculative`.

    Args:
        writer: a writer over `target`, whose index is the whole datastore.

    Raises:
        ContextOverflowError: the prompt does not fit into the context.
    """
    try:
        while not writer.finish:
            written = len(writer.tokens)
            writer.write(None, written, written + 1)
            target.record_drawn(writer.tokens[written:])
            record_writing(writer, statistics)
            statistics.strides = len(writer.tokens)
            statistics.searches, statistics.queries = target.searches, target.queries
            statistics.search_s = statistics.waited_s = target.search_s
            statistics.encoding_s = target.encoding_s
            statistics.generation_s -= target.search_s + target.encoding_s
            yield from writer.confirm(len(writer.tokens))
    finally:
        writer.close()
