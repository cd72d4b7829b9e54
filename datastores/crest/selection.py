"""Selecting which n-grams are kept, and which nodes of their trees.

The paper keeps the same number of n-grams for each n (crest.txt, section 5.4) and leaves open how
n-grams of different n compare (sections 5.3 and 5.4). Here they compete node by node, by the
utility of a node per byte; an n-gram is kept if its nodes together pay for its entry.

A drafter that ranks paths reads the trees of the 4-gram, 3-gram, 2-gram and 1-gram that end the
context, and backs off to a shorter one where the longer one is absent or uncertain. So the utility
of a node of n-gram g is what the node corrects: how often it will be reached, times the relative
change that g makes to the probability of the path:

    utility = expected(path after g) · |P(path) with g - P(path) without g| / P(path | g)
    expected(c occurrences of L tokens) = c · c / (c + (L - 1)³)

A longer n-gram that only repeats a shorter one has no utility, however common it is. A long string
that occurred a few times mostly occurred within one topic and will not occur again: the cube was
chosen by measurement, which also showed that document frequencies do no better than counts. P with
g is interpolated as in the drafter. A 1-gram has no shorter n-gram, so P without it is 0.

Tokens per step on recorded answers of Llama-3.1-8B (40 prompts, 3 M tokens of history in 1 MB,
CREST alone, budgets of 8 and 64): 1.78 and 2.10 with this rule, 1.67 and 1.98 with absolute
discounting instead of `expected` and full trust in g.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest.counting import Ints, Level

Floats = NDArray[np.float32]

MAX_CONTINUATION = 10
"""Depth of a tree, in tokens after its n-gram (the paper's setting)."""
MAX_NODES = 64
"""Nodes of a tree, without its n-gram (the paper's setting)."""
NODE_BYTES = 2.5
"""Average size of a node."""
ENTRY_BYTES = 5.0
"""Size of an entry without its nodes."""


DISCOUNT = 0.8
"""Subtracted from every count and given to the shorter n-grams (absolute discounting)."""
BACKOFF_BOOST = 3.0
"""Factor by which the shorter n-grams get more weight than discounting alone would give them. The
drafter (`engines.drafters.ngram_ranking`) interpolates with the same two constants."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The kept trees of the n-grams of one length, sorted by n-gram, depth and string.

    Attributes:
        length: n.
        roots: index of each node's n-gram in level n.
        depths: uint8, length of the node's string: n + its depth in the tree.
        strings: index of the node's string in its level.
        utilities: utility of each node.
    """

    length: int
    roots: Ints
    depths: NDArray[np.uint8]
    strings: Ints
    utilities: Floats

    def __len__(self) -> int:
        return len(self.roots)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Nodes:
        """The nodes `rows`, which must keep the order."""
        return Nodes(
            self.length,
            self.roots[rows],
            self.depths[rows],
            self.strings[rows],
            self.utilities[rows],
        )


def utilities(levels: Sequence[Level], length: int) -> dict[int, Floats]:
    """By level: the utility of each string as a node in the tree of its first `length` tokens.

    A node has at least the utility of its best descendant, which cannot be reached without it.
    """
    roots = ancestors(levels, length)
    trust = _trust(levels, length)
    found: dict[int, Floats] = {}
    for deep in depths(levels, length):
        level = levels[deep - 1]
        counts = level.counts.astype(np.float32)
        utility = counts * counts / (counts + np.float32((deep - 1) ** 3))
        if length > 1:
            above = levels[length - 1].suffix_counts[roots[deep]]
            probabilities = (counts - np.float32(DISCOUNT)) / levels[length - 1].counts[roots[deep]]
            without = (level.suffix_counts - np.float32(DISCOUNT)) / above
            utility *= trust[roots[deep]] * np.abs(1 - without / probabilities)
        found[deep] = utility.astype(np.float32)
    return propagate_max(levels, found)


def _trust(levels: Sequence[Level], length: int) -> NDArray[np.float64]:
    """The weight of each n-gram's own prediction relative to that of the shorter one."""
    counts = levels[length - 1].counts.astype(np.float64)
    next_level = levels[length]
    own = np.bincount(next_level.prefixes, next_level.counts - DISCOUNT, len(counts))
    return own / (own + BACKOFF_BOOST * (counts - own))


def propagate_max(levels: Sequence[Level], found: dict[int, Floats]) -> dict[int, Floats]:
    """Raise the utility of every node to that of its best descendant, if that is higher."""
    for deep in sorted(found, reverse=True):
        prefixes = levels[deep - 1].prefixes
        if deep - 1 in found and len(prefixes):
            # Strings are sorted by prefix, so those of one prefix are consecutive.
            starts = np.flatnonzero(np.diff(prefixes, prepend=-1))
            above = found[deep - 1]
            best = np.maximum.reduceat(found[deep], starts)
            above[prefixes[starts]] = np.maximum(above[prefixes[starts]], best)
    return found


def ancestors(levels: Sequence[Level], length: int) -> dict[int, Ints]:
    """By level, from `length` on: the n-gram of that length with which each string begins."""
    found = {length: np.arange(len(levels[length - 1]), dtype=np.int32)}
    for deeper in range(length + 1, min(length + MAX_CONTINUATION + 1, len(levels)) + 1):
        found[deeper] = found[deeper - 1][levels[deeper - 1].prefixes]
    return found


def candidates(
    levels: Sequence[Level], length: int, utility: Mapping[int, Floats], least: float
) -> Nodes:
    """All nodes with at least `least` utility per byte, in the trees of n-grams of one length.

    Args:
        utility: by level, of every string; at least that of any descendant.
    """
    roots = ancestors(levels, length)
    parts = []
    for deep, found in utility.items():
        rows = np.flatnonzero(found >= least * NODE_BYTES).astype(np.int32)
        depths = np.full(len(rows), deep, dtype=np.uint8)
        parts.append(Nodes(length, roots[deep][rows], depths, rows, found[rows]))
    return _ordered(length, parts)


def select_nodes(nodes: Nodes, least: float) -> Nodes:
    """The `nodes` with at least `least` utility per byte, in n-grams that reach it as a whole."""
    nodes = limit_trees(nodes.take(nodes.utilities >= least * NODE_BYTES))
    sums = np.bincount(nodes.roots, weights=nodes.utilities)
    sizes = np.bincount(nodes.roots)
    return nodes.take((sums >= least * (ENTRY_BYTES + NODE_BYTES * sizes))[nodes.roots])


def estimated_bytes(nodes: Nodes) -> float:
    """The approximate size of `nodes`."""
    entries = np.count_nonzero(np.diff(nodes.roots, prepend=-1))
    return NODE_BYTES * len(nodes) + ENTRY_BYTES * entries


def depths(levels: Sequence[Level], length: int) -> range:
    """Lengths of the strings that are nodes in the trees of n-grams of `length` tokens."""
    return range(length + 1, min(length + MAX_CONTINUATION, len(levels)) + 1)


def _ordered(length: int, parts: Sequence[Nodes]) -> Nodes:
    """All parts, of ascending depth, as one: sorted by n-gram, then depth, then string."""
    roots = np.concatenate([part.roots for part in parts])
    joined = Nodes(
        length,
        roots,
        np.concatenate([part.depths for part in parts]),
        np.concatenate([part.strings for part in parts]),
        np.concatenate([part.utilities for part in parts]),
    )
    return joined.take(np.argsort(roots, kind="stable"))


def limit_trees(nodes: Nodes) -> Nodes:
    """At most `MAX_NODES` of each tree: those of highest utility, then the shallower.

    No node has more utility than its parent, so the rest is a tree.
    """
    sizes = np.bincount(nodes.roots)
    large = np.flatnonzero(sizes[nodes.roots] > MAX_NODES)
    if not len(large):
        return nodes
    roots = nodes.roots[large]
    order = np.lexsort((-nodes.utilities[large], roots))
    firsts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    ranks = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    keep = np.ones(len(nodes), dtype=np.bool_)
    keep[large[order[ranks >= MAX_NODES]]] = False
    return nodes.take(keep)


def occurrences(levels: Sequence[Level], nodes: Nodes) -> NDArray[np.int64]:
    """The number of occurrences of each node's string."""
    found = np.zeros(len(nodes), dtype=np.int64)
    for deep in np.unique(nodes.depths).tolist():
        rows = nodes.depths == deep
        found[rows] = levels[deep - 1].counts[nodes.strings[rows]]
    return found
