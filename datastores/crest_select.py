"""Selecting: which n-grams are kept, and which nodes of their trees.

The paper keeps the same number of n-grams for each n (crest.txt, section 5.4). Here they compete,
node by node, by what a node is worth for the bytes it costs (`datastores.crest_worth`); an n-gram
stays if its nodes together pay for its entry. Owns thresholds and limits. Knows no bytes but
estimates, and no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest_strings import Ints, Level

Floats = NDArray[np.float32]

CONTINUATION = 10
"""Tokens that a tree reaches beyond its n-gram (the paper's setting)."""
MOST_NODES = 64
"""Nodes of a tree, the n-gram itself not counted (the paper's setting)."""
NODE_BYTES = 2.5
"""A node's bytes, on average."""
ENTRY_BYTES = 5.0
"""What an entry costs beside its nodes."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The kept trees of the n-grams of one length, in the order of n-gram, depth and string.

    Attributes:
        length: n.
        roots: index of each node's n-gram in level n.
        depths: uint8, length of the node's string: n + its depth in the tree.
        strings: index of the node's string in its level.
        worths: of each node, by the rule that kept it.
    """

    length: int
    roots: Ints
    depths: NDArray[np.uint8]
    strings: Ints
    worths: Floats

    def __len__(self) -> int:
        return len(self.roots)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Nodes:
        """The nodes `rows`, which must keep the order."""
        return Nodes(
            self.length, self.roots[rows], self.depths[rows], self.strings[rows], self.worths[rows]
        )


def ancestors(levels: Sequence[Level], length: int) -> dict[int, Ints]:
    """By level, from `length` on: the n-gram of that length which each string begins with."""
    found = {length: np.arange(len(levels[length - 1]), dtype=np.int32)}
    for deeper in range(length + 1, min(length + CONTINUATION + 1, len(levels)) + 1):
        found[deeper] = found[deeper - 1][levels[deeper - 1].prefixes]
    return found


def candidates(
    levels: Sequence[Level], length: int, worth: Mapping[int, Floats], least: float
) -> Nodes:
    """All nodes in the trees of n-grams of one length that are worth at least `least` a byte.

    Args:
        worth: of every string, by level; nowhere less than below.
    """
    roots = ancestors(levels, length)
    parts = []
    for deep, found in worth.items():
        rows = np.flatnonzero(found >= least * NODE_BYTES).astype(np.int32)
        depths = np.full(len(rows), deep, dtype=np.uint8)
        parts.append(Nodes(length, roots[deep][rows], depths, rows, found[rows]))
    return _ordered(length, parts)


def kept(nodes: Nodes, least: float) -> Nodes:
    """Those of `nodes` that are worth `least` a byte, in n-grams that are so too as a whole."""
    nodes = _pruned(nodes.take(nodes.worths >= least * NODE_BYTES))
    sums = np.bincount(nodes.roots, weights=nodes.worths)
    sizes = np.bincount(nodes.roots)
    return nodes.take((sums >= least * (ENTRY_BYTES + NODE_BYTES * sizes))[nodes.roots])


def estimated_bytes(nodes: Nodes) -> float:
    """About what `nodes` take."""
    entries = np.count_nonzero(np.diff(nodes.roots, prepend=-1))
    return NODE_BYTES * len(nodes) + ENTRY_BYTES * entries


def top(levels: Sequence[Level], length: int, number: int) -> Nodes:
    """The `number` most common n-grams of one length, their trees by prefix counts (the paper's).

    Equals are taken in the order of their tokens.
    """
    level = levels[length - 1]
    wanted = np.zeros(len(level), dtype=np.bool_)
    wanted[np.argsort(-level.counts, kind="stable")[:number]] = True
    roots = ancestors(levels, length)
    worth = {
        deep: np.where(wanted[roots[deep]], levels[deep - 1].counts, -1).astype(np.float32)
        for deep in depths(levels, length)
    }
    return _pruned(candidates(levels, length, worth, 0.0))


def depths(levels: Sequence[Level], length: int) -> range:
    """Lengths of the strings that are nodes in the trees of n-grams of `length` tokens."""
    return range(length + 1, min(length + CONTINUATION, len(levels)) + 1)


def _ordered(length: int, parts: Sequence[Nodes]) -> Nodes:
    """All parts, of ascending depth, as one: by n-gram, then depth, then string."""
    roots = np.concatenate([part.roots for part in parts])
    joined = Nodes(
        length,
        roots,
        np.concatenate([part.depths for part in parts]),
        np.concatenate([part.strings for part in parts]),
        np.concatenate([part.worths for part in parts]),
    )
    return joined.take(np.argsort(roots, kind="stable"))


def _pruned(nodes: Nodes) -> Nodes:
    """At most `MOST_NODES` of each tree: those worth most, the shallower among equals.

    A node is never worth more than its parent, so what is left is a tree.
    """
    sizes = np.bincount(nodes.roots)
    large = np.flatnonzero(sizes[nodes.roots] > MOST_NODES)
    if not len(large):
        return nodes
    roots = nodes.roots[large]
    order = np.lexsort((-nodes.worths[large], roots))
    firsts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    ranks = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order)))
    keep = np.ones(len(nodes), dtype=np.bool_)
    keep[large[order[ranks >= MOST_NODES]]] = False
    return nodes.take(keep)


def occurrences(levels: Sequence[Level], nodes: Nodes) -> NDArray[np.int64]:
    """How often the string of each node occurred."""
    found = np.zeros(len(nodes), dtype=np.int64)
    for deep in np.unique(nodes.depths).tolist():
        rows = nodes.depths == deep
        found[rows] = levels[deep - 1].counts[nodes.strings[rows]]
    return found
