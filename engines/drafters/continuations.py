"""A draft from many remembered continuations: one trie, grown where it is likeliest.

The continuations of n past occasions, each with a weight that says how much it resembles the
present one, give every node of their trie an estimate of P(token | its parent was emitted): the
weight of those that go through the node over the weight of those that reached its parent, as kNN-LM
estimates a next token (Khandelwal et al. 2020, equation 2). Beside them stands a doubt, the weight
of "none of these", which halves with every token the present has in common with the path.

Owns that estimate and the order of growth. Refuses to know where continuations come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from engines.tree import DraftTree, root_only

DOUBT = 0.02
"""Weight of "none of these" at the root, where a perfect match weighs 1."""
DECAY = 0.5
"""What one more token in common leaves of the doubt."""
FLOOR = 0.005
"""Path probability below which a row is not worth proposing."""

Entry = tuple[float, int, int, float, list[int], int]
"""A node to be: minus its path probability, its parent's row, its token, its probability, who goes
through it, its depth. Parent and token break ties."""


def grow(
    root: int,
    continuations: Sequence[Sequence[int]],
    weights: Sequence[float],
    supports: Sequence[float],
    source: int,
    limit: int,
) -> DraftTree:
    """A tree of at most `limit` rows beside the root, added best-first by path probability.

    Args:
        continuations: what followed the root on each occasion; a negative number ends it.
        weights: of each occasion, 1 for one that could not be told from the present.
        supports: of each occasion; a row gets the largest of those that go through it.
    """
    tree = root_only(root)
    heap: list[Entry] = []
    everyone = list(range(len(continuations)))
    _branch(heap, continuations, weights, everyone, 0, 1.0, 0)
    while heap and len(tree) <= limit:
        negative, parent, token, probability, members, depth = heappop(heap)
        support = max(supports[member] for member in members)
        row = tree.add(parent, token, source, probability, support)
        _branch(heap, continuations, weights, members, row, -negative, depth)
    return tree


def _branch(
    heap: list[Entry],
    continuations: Sequence[Sequence[int]],
    weights: Sequence[float],
    members: list[int],
    parent: int,
    path: float,
    depth: int,
) -> None:
    """Push the children of a node that lies `depth` tokens deep and on the way of `members`."""
    total = DOUBT * DECAY**depth
    groups: dict[int, list[int]] = {}
    shares: dict[int, float] = {}
    for member in members:
        weight, words = weights[member], continuations[member]
        total += weight
        token = words[depth] if depth < len(words) else -1
        if token in groups:
            groups[token].append(member)
            shares[token] += weight
        elif token >= 0:
            groups[token] = [member]
            shares[token] = weight
    for token, group in groups.items():
        probability = shares[token] / total
        if path * probability >= FLOOR:
            heappush(heap, (-path * probability, parent, token, probability, group, depth + 1))
