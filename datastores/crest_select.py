"""Selecting: which n-grams are kept, and which nodes of their trees.

The paper keeps the same number of n-grams for each n (crest.txt, section 5.4), and leaves open how
n-grams of different n should compete (sections 5.3 and 5.5). Here they do, node by node, by what a
node is worth for the bytes it costs.

A drafter that ranks paths reads the trees of the 4-gram, 3-gram, 2-gram and 1-gram that end the
context, and where a longer one is silent the shorter one speaks for it. So a node of n-gram g is
worth what it *corrects*: how often g came, times by how much P(path | g) differs from P(path | g
without its first token),

    worth = (count(g · path) - D) · |1 - P(path | g without its first token) / P(path | g)|

with absolute discounting D. A longer n-gram that only repeats what the shorter one says is worth
nothing, however common; a rare one is worth little, however sure. For 1-grams the shorter tree is
empty. Measured on recorded answers (Llama-3.1-8B, 3 M tokens of history, ranked paths, 64 nodes):
1.88 tokens per call with 4.1 MB, where keeping the most common nodes of any n needs 8 MB.

Owns the rules. Knows no bytes but an estimate, and no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.crest_strings import Ints, Level

Floats = NDArray[np.float32]

CONTINUATION = 10
"""Tokens that a tree reaches beyond its n-gram (the paper's setting)."""
MOST_NODES = 64
"""Nodes of a tree, the n-gram itself not counted (the paper's setting)."""
DISCOUNT = 0.8
"""Taken from every count: a path seen once is seen again far less often than once."""
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


def worths(levels: Sequence[Level], length: int) -> dict[int, Floats]:
    """By level: what each string is worth as a node in the tree of its first `length` tokens.

    No node is worth less than the best below it, which it takes to reach that one.
    """
    roots = ancestors(levels, length)
    shorter = ancestors(levels, length - 1) if length > 1 else {}
    found: dict[int, Floats] = {}
    for deep in _depths(levels, length):
        level = levels[deep - 1]
        counts = level.counts - np.float32(DISCOUNT)
        if length > 1:
            own = levels[length - 1].counts[roots[deep]] / counts
            less = levels[deep - 2].counts[level.suffixes] - np.float32(DISCOUNT)
            all_less = levels[length - 2].counts[shorter[deep - 1][level.suffixes]]
            counts *= np.abs(1 - own * less / all_less)
        found[deep] = counts.astype(np.float32)
    return _lift(levels, found)


def counts(levels: Sequence[Level], length: int) -> dict[int, Floats]:
    """By level: how often each string occurred, the paper's measure of a node."""
    return {deep: levels[deep - 1].counts.astype(np.float32) for deep in _depths(levels, length)}


def kept(
    levels: Sequence[Level],
    length: int,
    worth: dict[int, Floats],
    least: float,
    wanted: NDArray[np.bool_] | None = None,
) -> Nodes:
    """The nodes worth at least `least` a byte, at most `MOST_NODES` of each n-gram.

    Args:
        worth: of every string by level; nowhere less than below.
        wanted: which n-grams may be kept; None for those whose nodes together are worth it.
    """
    roots = ancestors(levels, length)
    parts = []
    for deep in _depths(levels, length):
        good = worth[deep] >= least * NODE_BYTES
        if wanted is not None:
            good &= wanted[roots[deep]]
        rows = np.flatnonzero(good).astype(np.int32)
        depths = np.full(len(rows), deep, dtype=np.uint8)
        parts.append(Nodes(length, roots[deep][rows], depths, rows, worth[deep][rows]))
    nodes = _pruned(levels, _ordered(length, parts))
    return nodes if wanted is not None else _worthwhile(nodes, least)


def top(levels: Sequence[Level], length: int, number: int) -> Nodes:
    """The `number` most common n-grams of one length, their trees by prefix counts (the paper's).

    Equals are taken in the order of their tokens.
    """
    level = levels[length - 1]
    wanted = np.zeros(len(level), dtype=np.bool_)
    wanted[np.argsort(-level.counts, kind="stable")[:number]] = True
    return kept(levels, length, counts(levels, length), 0.0, wanted)


def _depths(levels: Sequence[Level], length: int) -> range:
    return range(length + 1, min(length + CONTINUATION, len(levels)) + 1)


def _lift(levels: Sequence[Level], found: dict[int, Floats]) -> dict[int, Floats]:
    """Raise every node to the best one below it."""
    for deep in sorted(found, reverse=True):
        prefixes = levels[deep - 1].prefixes
        if deep - 1 in found and len(prefixes):
            # Strings stand in the order of their prefixes: each prefix's are a run.
            starts = np.flatnonzero(np.diff(prefixes, prepend=-1))
            above = found[deep - 1]
            best = np.maximum.reduceat(found[deep], starts)
            above[prefixes[starts]] = np.maximum(above[prefixes[starts]], best)
    return found


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


def _pruned(levels: Sequence[Level], nodes: Nodes) -> Nodes:
    """At most `MOST_NODES` of each tree: the most common, the shallower among equals.

    A node is never more common than its parent, so what is left is a tree.
    """
    sizes = np.bincount(nodes.roots)
    large = np.flatnonzero(sizes[nodes.roots] > MOST_NODES)
    if not len(large):
        return nodes
    roots, found = nodes.roots[large], occurrences(levels, nodes.take(large))
    order = np.lexsort((-found, roots))
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


def _worthwhile(nodes: Nodes, least: float) -> Nodes:
    """Without the n-grams whose nodes do not pay for the entry."""
    sums = np.bincount(nodes.roots, weights=nodes.worths)
    sizes = np.bincount(nodes.roots)
    return nodes.take((sums >= least * (ENTRY_BYTES + NODE_BYTES * sizes))[nodes.roots])
