"""Ranking paths: the trees of several n-grams become one draft, the most probable paths first.

The paper drafts the tree of the longest n-gram it finds (crest.txt, section 3.1). Here every
n-gram that ends the context has its say, on every path: P(token | path) is interpolated from the
longest match to the shortest by absolute discounting (Ney, Essen and Kneser 1994), and rows are
drafted best first by the product of P along their path, which makes the tree the best of its size.
Every row is conditioned on the drafted path as well: below the root the 1-gram's tree speaks of
bigrams.

Owns the formula. Knows no stores: it reads decoded trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import log1p

from datastores.crest_codec import Entry
from engines.tree import DraftTree, root_only

DISCOUNT = 0.8
"""Taken from every count and given to the shorter n-grams."""
MISTRUST = 2.0
"""The shorter n-grams get so many times more weight than discounting alone would leave them."""
FLOOR = 0.001
"""Path probability below which a row is not worth proposing."""

Place = tuple[Entry, int, float]
"""A node in one n-gram's tree: the tree, the node's row there, how often it occurred."""
Candidate = list[Place]
"""A token that may follow: its places, in the trees that have it, the longest n-gram first."""


def rank(entries: Sequence[Entry], root: int, limit: int) -> DraftTree:
    """The `limit` most probable rows under `root`.

    Args:
        entries: trees of the n-grams that end with the root, the longest first.

    Supports are ln(1 + occurrences of the longest path that has the row). The source of a row is
    the kind of that path's n-gram: kind k is source bit 1 << k.
    """
    tree = root_only(root)
    heap: list[tuple[float, int, int, int, float, Candidate]] = []
    places: Candidate = [(entry, 0, entry.count) for entry in entries]
    row, path, pushed = 0, 1.0, 0
    while len(tree) <= limit:
        chances, candidates = blend(places)
        for token, chance in chances.items():
            if path * chance > FLOOR:
                pushed += 1
                item = (-path * chance, pushed, token, row, chance, candidates[token])
                heappush(heap, item)
        if not heap:
            break
        negative, _, token, parent, chance, places = heappop(heap)
        entry, _, count = places[0]
        row = tree.add(parent, token, 1 << entry.kind, chance, log1p(count))
        path = -negative
    return tree


def blend(places: Sequence[Place]) -> tuple[dict[int, float], dict[int, Candidate]]:
    """P of every token that may follow a path which stands at `places`, and its own places.

    What one n-gram leaves over, by discounting and because rare nodes are not stored, the next
    shorter one shares out.
    """
    chances: dict[int, float] = {}
    candidates: dict[int, Candidate] = {}
    left = 1.0
    for entry, row, count in places:
        first, last = entry.children[row]
        if first == last:
            continue
        tokens = entry.tokens
        # Quantised counts: none is below 1, and a node is no rarer than its children together.
        counts = [max(count * chance, 1.0) for chance in entry.chances[first:last]]
        total = sum(counts)
        said = total - DISCOUNT * len(counts)
        unsaid = (max(count, total) - said) * MISTRUST
        share = left / (said + unsaid)
        for child, number in enumerate(counts, first):
            token = tokens[child]
            chance = share * (number - DISCOUNT)
            if token in chances:
                chances[token] += chance
                candidates[token].append((entry, child, number))
            else:
                chances[token] = chance
                candidates[token] = [(entry, child, number)]
        left = share * unsaid
    return chances, candidates
