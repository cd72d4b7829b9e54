"""REST, the baseline: what followed the longest match in a suffix array (crest.txt, section 3.1).

Looks for the last 16 tokens, then 15, down to 2, and drafts the most common prefixes of what
follows the longest match. Serves benchmarks only.
"""

from __future__ import annotations

from math import log1p

import numpy as np
from numpy.typing import NDArray

from datastores.rest import SEPARATOR, Ids, RestStore
from engines.drafters.protocol import Context
from engines.sources import CHATS
from engines.step import Step
from engines.tree import DraftTree, root_only

LONGEST = 16
SHORTEST = 2
MATCHES = 5000
CONTINUATION = 10
NODES = 64
"""The paper's settings (section 5.1)."""


class Rest:
    """A drafter over one suffix array."""

    name = "rest"
    learns_from = 0

    def __init__(self, store: RestStore, continuation: int = CONTINUATION) -> None:
        """Draft from `store`, at most `continuation` tokens far."""
        self._store = store
        self._continuation = continuation

    def begin(self, context: Context) -> None:
        """Nothing to do: every lookup stands by itself."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common prefixes of the continuations of the longest match."""
        length, found = self._longest(context.tokens[-LONGEST:])
        if not length:
            return root_only(context.root)
        ids = self._store.continuations(found, length, self._continuation, MATCHES)
        return _tree(context.root, ids, min(limit, NODES))

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store is fixed."""

    def _longest(self, context: list[int]) -> tuple[int, tuple[int, int]]:
        """Length and range of the longest match; length 0 if there is none.

        Upwards from the shortest: where n tokens are not found, no more are.
        """
        best, found = 0, (0, len(self._store))
        for length in range(SHORTEST, len(context) + 1):
            first, last = self._store.find(context[-length:], (0, len(self._store)))
            if first == last:
                break
            best, found = length, (first, last)
        return best, found


def _tree(root: int, ids: Ids, limit: int) -> DraftTree:
    """The `limit` most common prefixes of the rows of `ids`, which are in ascending order.

    Among equals the shorter comes first, then the lower tokens.
    """
    starts = np.ones(ids.shape, dtype=np.bool_)
    starts[1:] = np.logical_or.accumulate(ids[1:] != ids[:-1], axis=1)
    runs = np.cumsum(starts, axis=0)
    columns, firsts = np.nonzero((starts & (ids != SEPARATOR)).T)
    counts = _run_lengths(starts)[columns, firsts]
    tree = root_only(root)
    rows: dict[tuple[int, int], int] = {(-1, 0): 0}
    sizes = [len(ids)]
    for chosen in np.lexsort((firsts, columns, -counts))[:limit].tolist():
        column, first = int(columns[chosen]), int(firsts[chosen])
        parent = rows[column - 1, int(runs[first, column - 1]) if column else 0]
        sizes.append(int(counts[chosen]))
        chance, support = sizes[-1] / sizes[parent], log1p(sizes[parent])
        row = tree.add(parent, int(ids[first, column]) - 1, CHATS, chance, support)
        rows[column, int(runs[first, column])] = row
    return tree


def _run_lengths(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each column and row: rows until the next start in that column. Shape [columns, rows]."""
    rows = np.arange(len(starts))
    following = np.full((starts.shape[1], len(starts) + 1), len(starts))
    following[:, :-1] = np.where(starts.T, rows, len(starts))
    following = np.minimum.accumulate(following[:, ::-1], axis=1)[:, ::-1]
    return following[:, 1:] - rows
