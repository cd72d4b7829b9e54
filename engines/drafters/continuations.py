"""A draft from many remembered continuations: one trie, grown where it is likeliest.

The continuations of n past occasions, each with a weight that says how much it resembles the
present one, give every node of their trie an estimate of P(token | its parent was emitted): the
weight of those that go through the node over the weight of those that reached its parent, as kNN-LM
estimates a next token (Khandelwal et al. 2020, equation 2). Beside them stands a doubt, the weight
of "none of these", which halves with every token the present has in common with the path.

Owns that estimate and the order of growth. Refuses to know where continuations come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from engines.tree import DraftTree, root_only

DOUBT = 0.02
"""Weight of "none of these" at the root, where a perfect match weighs 1."""
DECAY = 0.5
"""What one more token in common leaves of the doubt."""
FLOOR = 0.005
"""Path probability below which a row is not worth proposing."""

Entry = tuple[float, int, int, float, Sequence[int], float, int]
"""A node to be: minus its path probability, its parent's row, its token, its probability, who goes
through it, their weight, its depth. Parent and token break ties."""


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
        continuations: what followed the root on each occasion, all equally long; a negative number
            ends it.
        weights: of each occasion, 1 for one that could not be told from the present.
        supports: of each occasion, falling; a row gets that of the first that goes through it.
    """
    tree = root_only(root)
    heap: list[Entry] = []
    _branch(heap, continuations, weights, range(len(weights)), sum(weights), 0, 1.0, 0)
    while heap:
        negative, parent, token, probability, members, mass, depth = heappop(heap)
        row = tree.add(parent, token, source, probability, supports[members[0]])
        if row == limit:
            break
        _branch(heap, continuations, weights, members, mass, row, -negative, depth)
    return tree


def _branch(
    heap: list[Entry],
    continuations: Sequence[Sequence[int]],
    weights: Sequence[float],
    members: Sequence[int],
    mass: float,
    parent: int,
    path: float,
    depth: int,
) -> None:
    """Push the children of a node that lies `depth` tokens deep and on the way of `members`, who
    weigh `mass` together."""
    if not members or depth == len(continuations[0]):
        return
    total = mass + DOUBT * DECAY**depth
    for token, group in _groups([continuations[member][depth] for member in members], members):
        share = mass if len(group) == len(members) else sum(weights[i] for i in group)
        probability = share / total
        if token >= 0 and path * probability >= FLOOR:
            entry = (-path * probability, parent, token, probability, group, share, depth + 1)
            heappush(heap, entry)


def _groups(tokens: list[int], members: Sequence[int]) -> Iterable[tuple[int, Sequence[int]]]:
    """Members by their token. Mostly they agree, which is cheap."""
    if tokens.count(tokens[0]) == len(tokens):
        return ((tokens[0], members),)
    groups: dict[int, list[int]] = {}
    for token, member in zip(tokens, members, strict=True):
        if token in groups:
            groups[token].append(member)
        else:
            groups[token] = [member]
    return groups.items()
