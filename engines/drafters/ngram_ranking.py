"""Recall: n-gram counts of the present context, to be heard beside the n-grams of a store.

What was said in this chat is the best guide to what will be said next. Owns the counts, which
follow the context as it grows and are rewound when it changes. Refuses to know trees and stores
(`engines.drafters.ngram_ranking` blends them).

Ranking paths: the trees of several n-grams become one draft, the most probable paths first.

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

from datastores.crest.format import CrestEntry
from datastores.tokens import common_prefix
from engines.draft_tree import PROMPT, DraftTree, root_only

DISCOUNT = 0.8
"""Taken from every count of a store and given to the shorter n-grams."""
MISTRUST = 3.0
"""The shorter n-grams get so many times more weight than discounting alone would leave them."""
NOVELTY = 3.0
"""Weight, in occurrences, of "something new" for each token known to follow an n-gram of the
context (Witten and Bell 1991, with a weight of 1)."""
FLOOR = 0.06
"""Path probability, divided by the rows wanted, below which a row is not worth proposing."""

TRIFLE = 0.5
"""Share of what a row needs below which one n-gram alone does not bring up a token."""

Place = tuple[CrestEntry, int, float]
"""A node in one n-gram's tree: the tree, the node's row there, how often it occurred."""


class Candidate:
    """A token that may follow a path.

    Attributes:
        chance: P(token | path).
        source: who says so, as a bit set of `engines.draft_tree`.
        support: ln(1 + occurrences of the longest n-gram that says so).
        places: where the longer path stands in the trees that have it, the longest n-gram first.
    """

    __slots__ = ("chance", "places", "source", "support")

    def __init__(self, chance: float, source: int, support: float) -> None:
        self.chance = chance
        self.source = source
        self.support = support
        self.places: list[Place] = []


def rank(
    entries: Sequence[CrestEntry],
    context: Sequence[int],
    limit: int,
    recall: ContextNgrams | None = None,
) -> DraftTree:
    """The `limit` most probable rows that may follow `context`, whose last token is the root.

    Args:
        entries: trees of the n-grams that end with the root, the longest first.
        recall: n-grams of the context itself, heard before those of `entries`.

    The source of a row is the kind of the longest n-gram that has it (kind k is source bit 1 << k),
    and `PROMPT` where the context has it.
    """
    tree = root_only(context[-1])
    heap: list[tuple[float, int, int, int, Candidate, tuple[int, ...]]] = []
    places = [(entry, 0, entry.count) for entry in entries]
    suffix = tuple(context[-LONGEST:])
    row, path, pushed = 0, 1.0, 0
    floor = FLOOR / max(limit, 1)
    while len(tree) <= limit:
        for token, found in blend(places, suffix, recall, floor / path).items():
            probability = path * found.chance
            if probability > floor:
                pushed += 1
                heappush(heap, (-probability, pushed, token, row, found, suffix))
        if not heap:
            break
        negative, _, token, parent, found, suffix = heappop(heap)
        row = tree.add(parent, token, found.source, found.chance, found.support)
        path, places = -negative, found.places
        suffix = (*suffix, token)[-LONGEST:]
    return tree


def blend(
    places: Sequence[Place],
    suffix: tuple[int, ...],
    recall: ContextNgrams | None = None,
    least: float = 0.0,
) -> dict[int, Candidate]:
    """What may follow a path that ends with `suffix` and stands at `places` in the trees.

    What one n-gram leaves over, because it was seen seldom or because rare nodes are not stored,
    the next shorter one shares out: first those of the context, then those of the store. It ends
    where less than `least` is left.
    """
    found: dict[int, Candidate] = {}
    left = _recalled(found, suffix, recall, least) if recall else 1.0
    for entry, row, count in places:
        first, last = entry.children[row]
        if first == last:
            continue
        if left < least:
            break
        # Quantised counts: none is below 1, and a node is no rarer than its children together.
        counts = [max(count * chance, 1.0) for chance in entry.chances[first:last]]
        total = sum(counts)
        said = total - DISCOUNT * len(counts)
        unsaid = (max(count, total) - said) * MISTRUST
        share = left / (said + unsaid)
        left = share * unsaid
        tokens = entry.tokens
        few = TRIFLE * least / share + DISCOUNT
        for child, number in enumerate(counts, first):
            token = tokens[child]
            candidate = found.get(token)
            if candidate is None:
                if number < few:
                    continue
                candidate = found[token] = Candidate(0.0, 1 << entry.kind, log1p(count))
            elif candidate.source == PROMPT:
                candidate.source |= 1 << entry.kind
            candidate.chance += share * (number - DISCOUNT)
            candidate.places.append((entry, child, number))
    return found


def _recalled(
    found: dict[int, Candidate], suffix: tuple[int, ...], recall: ContextNgrams, least: float
) -> float:
    """Add what the context knows; returns what it leaves over."""
    left = 1.0
    followers = recall.followers
    for start in range(len(suffix)):
        after = followers.get(suffix[start:])
        if after is None:
            continue
        if left < least:
            break
        total = sum(after.values())
        share = left / (total + NOVELTY * len(after))
        left = share * NOVELTY * len(after)
        if share * max(after.values()) < least:
            continue
        few = TRIFLE * least / share
        for token, number in after.items():
            candidate = found.get(token)
            if candidate is None:
                if number < few:
                    continue
                candidate = found[token] = Candidate(0.0, PROMPT, log1p(total))
            candidate.chance += share * number
    return left


LONGEST = 4
"""n-grams of 1 to this many tokens are counted."""

Followers = dict[int, int]
"""Token that followed → how often."""


class ContextNgrams:
    """Counts of what followed every n-gram of one context.

    Attributes:
        followers: n-gram of at most `LONGEST` tokens → each token that followed it → how often.
    """

    def __init__(self) -> None:
        self._tokens: Sequence[int] = ()
        self._counted: list[int] = []
        self.followers: dict[tuple[int, ...], Followers] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        """Go over to another context, keeping what is known of the beginning they share.

        `tokens` may grow afterwards; `extend` takes note of it.
        """
        shared = common_prefix(self._counted, tokens)
        while len(self._counted) > shared:
            self._uncount()
        self._tokens = tokens

    def extend(self) -> None:
        """Count what the context has grown by."""
        counted, followers = self._counted, self.followers
        for token in self._tokens[len(counted) :]:
            recent = tuple(counted[-LONGEST:])
            for start in range(len(recent)):
                after = followers.setdefault(recent[start:], {})
                after[token] = after.get(token, 0) + 1
            counted.append(token)

    def _uncount(self) -> None:
        """Take back the last token counted."""
        token = self._counted.pop()
        recent = tuple(self._counted[-LONGEST:])
        for start in range(len(recent)):
            after = self.followers[recent[start:]]
            after[token] -= 1
            if not after[token]:
                del after[token]
            if not after:
                del self.followers[recent[start:]]
