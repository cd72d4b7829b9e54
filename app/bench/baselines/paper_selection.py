"""CREST as published, for comparison with specchat's own (crest.txt, sections 3.1 and 5.4).

The paper keeps the same number of n-grams for each n, the most common ones, and drafts the tree of
the longest match alone. Its trees are encoded, stored and read as specchat's own, so that only
selection and drafting differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastores.crest.build import (
    BuiltStore,
    CountedText,
    encode_trees,
    encoded_bytes,
    page_room,
    paginate,
)
from datastores.crest.counting import Level
from datastores.crest.reader import CrestReader
from datastores.crest.selection import Nodes, ancestors, candidates, depths, limit_trees
from engines.draft_tree import DraftTree
from engines.drafters.ngram_ranking import rank
from engines.step import Context, Step

TREE_BYTES = 30
"""An n-gram with its tree, on average, if the whole tree is kept."""
MAX_ATTEMPTS = 12
"""To find the number of n-grams that fills a budget."""
FILLED_SHARE = 0.95
"""Share of a budget at which it counts as filled."""


def select_most_common(counted: CountedText, lengths: Sequence[int], number: int) -> BuiltStore:
    """The `number` most common n-grams of each of `lengths`."""
    chosen = [most_common(counted.levels, length, number) for length in lengths]
    entries, ids = encode_trees(counted, chosen)
    return paginate(entries, ids, max(lengths))


def select_within(counted: CountedText, lengths: Sequence[int], budget: int) -> BuiltStore:
    """As many n-grams of each of `lengths`, the same number of each, as `budget` bytes hold."""
    room = page_room(budget)
    fits = 0
    fails = max(len(counted.levels[length - 1]) for length in lengths) + 1
    number = min(room // (TREE_BYTES * len(lengths)), fails - 1)
    for _ in range(MAX_ATTEMPTS):
        chosen = [most_common(counted.levels, length, number) for length in lengths]
        size = encoded_bytes(*encode_trees(counted, chosen))
        if size <= room:
            fits = number
        else:
            fails = number
        if FILLED_SHARE * room <= size <= room or fails - fits <= 1:
            break
        number = int(number * room / size * FILLED_SHARE**0.5) if size else fails
        if not fits < number < fails:
            number = (fits + fails) // 2
    return select_most_common(counted, lengths, fits)


def most_common(levels: Sequence[Level], length: int, number: int) -> Nodes:
    """The `number` most common n-grams of one length, their trees selected by prefix counts.

    Ties are broken by the order of tokens.
    """
    level = levels[length - 1]
    wanted = np.zeros(len(level), dtype=np.bool_)
    wanted[np.argsort(-level.counts, kind="stable")[:number]] = True
    roots = ancestors(levels, length)
    counts = {
        deep: np.where(wanted[roots[deep]], levels[deep - 1].counts, -1).astype(np.float32)
        for deep in depths(levels, length)
    }
    return limit_trees(candidates(levels, length, counts, 0.0))


class LongestMatch:
    """The paper's way of drafting: the tree of the longest n-gram found, the others ignored."""

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """Reopen the store if it was replaced."""
        self._reader.refresh()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.tokens, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store is built from finished answers."""
