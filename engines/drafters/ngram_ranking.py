"""Ranking paths: the trees of several n-grams become one draft, the most probable paths first.

The paper drafts the tree of the longest n-gram it finds (crest.txt, section 3.1). Here every n-gram
that ends the context contributes to every path: P(token | path) is interpolated from the longest
match to the shortest by absolute discounting (Ney, Essen and Kneser 1994), and rows are drafted
best first by the product of P along their path, which makes the tree the best of its size. Each row
is conditioned on the drafted path as well: below the root the 1-gram's tree describes bigrams.

The n-grams of the context itself (`ContextNgrams`) come before those of the store, since a chat
is the best predictor of its own continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import log1p

from datastores.crest.reader import CrestTree
from datastores.crest.selection import BACKOFF_BOOST, DISCOUNT
from datastores.tokens import common_prefix
from engines.draft_tree import PROMPT, DraftTree, root_only

ESCAPE_WEIGHT = 3.0
"""Weight, in occurrences, of "a new token" for each token known to follow an n-gram of the context
(Witten and Bell 1991, with a weight of 1)."""
MIN_PATH_PROBABILITY = 0.06
"""Divided by the requested rows: path probability below which a row is not worth proposing."""
MIN_SHARE = 0.5
"""Share of a row's required probability below which a single n-gram does not introduce a token."""
MAX_CONTEXT_NGRAM = 4
"""Largest n of the context's n-grams that are counted."""

TreeNode = tuple[CrestTree, int, float]
"""A node in one n-gram's tree: the tree, the node's row there, its number of occurrences."""


class ContextNgrams:
    """Counts of what followed every n-gram of one context, updated as it grows or changes.

    Attributes:
        followers: n-gram of at most `MAX_CONTEXT_NGRAM` tokens → token that followed it → count.
    """

    def __init__(self) -> None:
        self._tokens: Sequence[int] = ()
        self._counted: list[int] = []
        self.followers: dict[tuple[int, ...], dict[int, int]] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        """Switch to another context and keep the counts of the common prefix.

        `tokens` may grow afterwards; `extend` counts the new ones.
        """
        shared = common_prefix(self._counted, tokens)
        while len(self._counted) > shared:
            self._uncount()
        self._tokens = tokens

    def extend(self) -> None:
        """Count the tokens appended since the last call."""
        counted, followers = self._counted, self.followers
        for token in self._tokens[len(counted) :]:
            recent = tuple(counted[-MAX_CONTEXT_NGRAM:])
            for start in range(len(recent)):
                after = followers.setdefault(recent[start:], {})
                after[token] = after.get(token, 0) + 1
            counted.append(token)

    def _uncount(self) -> None:
        token = self._counted.pop()
        recent = tuple(self._counted[-MAX_CONTEXT_NGRAM:])
        for start in range(len(recent)):
            after = self.followers[recent[start:]]
            after[token] -= 1
            if not after[token]:
                del after[token]
            if not after:
                del self.followers[recent[start:]]


class Candidate:
    """A token that may follow a path.

    Attributes:
        probability: P(token | path).
        origin: origins of the n-grams that have it, as a bit set.
        support: ln(1 + occurrences of the longest n-gram that has it).
        nodes: its nodes in the trees that have it, the longest n-gram first.
    """

    __slots__ = ("nodes", "origin", "probability", "support")

    def __init__(self, probability: float, origin: int, support: float) -> None:
        self.probability = probability
        self.origin = origin
        self.support = support
        self.nodes: list[TreeNode] = []


def rank(
    entries: Sequence[CrestTree],
    context: Sequence[int],
    limit: int,
    context_ngrams: ContextNgrams | None = None,
) -> DraftTree:
    """The `limit` most probable rows that may follow `context`, whose last token is the root.

    A row's origin is the kind of the longest n-gram that has it (kind k is origin bit 1 << k), and
    `PROMPT` if the context has it.

    Args:
        entries: trees of the n-grams that end with the root, the longest first.
        context_ngrams: n-grams of the context itself, which come before those of `entries`.
    """
    tree = root_only(context[-1])
    heap: list[tuple[float, int, int, int, Candidate, tuple[int, ...]]] = []
    nodes = [(entry, 0, entry.count) for entry in entries]
    suffix = tuple(context[-MAX_CONTEXT_NGRAM:])
    row, path, pushed = 0, 1.0, 0
    floor = MIN_PATH_PROBABILITY / max(limit, 1)
    while len(tree) <= limit:
        for token, found in interpolate(nodes, suffix, context_ngrams, floor / path).items():
            probability = path * found.probability
            if probability > floor:
                pushed += 1
                heappush(heap, (-probability, pushed, token, row, found, suffix))
        if not heap:
            break
        negative, _, token, parent, found, suffix = heappop(heap)
        row = tree.add(parent, token, found.origin, found.probability, found.support)
        path, nodes = -negative, found.nodes
        suffix = (*suffix, token)[-MAX_CONTEXT_NGRAM:]
    return tree


def interpolate(
    nodes: Sequence[TreeNode],
    suffix: tuple[int, ...],
    context_ngrams: ContextNgrams | None = None,
    least: float = 0.0,
) -> dict[int, Candidate]:
    """The tokens that may follow a path that ends with `suffix` and has reached `nodes`.

    The mass that one n-gram leaves, because it is rare or because its rare nodes are not stored,
    passes to the next shorter one: first those of the context, then those of the store. It stops
    where less than `least` is left.
    """
    found: dict[int, Candidate] = {}
    left = _add_context(found, suffix, context_ngrams, least) if context_ngrams else 1.0
    for entry, row, count in nodes:
        first, last = entry.followers(row)
        if first == last:
            continue
        if left < least:
            break
        # Counts are quantised: none is below 1, and a node is no rarer than its children together.
        counts = [max(count * chance, 1.0) for chance in entry.probabilities[first:last]]
        total = sum(counts)
        discounted = total - DISCOUNT * len(counts)
        backoff = (max(count, total) - discounted) * BACKOFF_BOOST
        share = left / (discounted + backoff)
        left = share * backoff
        tokens = entry.tokens
        needed = MIN_SHARE * least / share + DISCOUNT
        for child, number in enumerate(counts, first):
            token = tokens[child]
            candidate = found.get(token)
            if candidate is None:
                if number < needed:
                    continue
                candidate = found[token] = Candidate(0.0, 1 << entry.kind, log1p(count))
            elif candidate.origin == PROMPT:
                candidate.origin |= 1 << entry.kind
            candidate.probability += share * (number - DISCOUNT)
            candidate.nodes.append((entry, child, number))
    return found


def _add_context(
    found: dict[int, Candidate], suffix: tuple[int, ...], ngrams: ContextNgrams, least: float
) -> float:
    """Add the tokens that followed `suffix` in the context; returns the mass that is left."""
    left = 1.0
    followers = ngrams.followers
    while suffix and left >= least:
        after = followers.get(suffix)
        suffix = suffix[1:]
        if after is None:
            continue
        total = sum(after.values())
        share = left / (total + ESCAPE_WEIGHT * len(after))
        left = share * ESCAPE_WEIGHT * len(after)
        if share * max(after.values()) < least:
            continue
        needed = MIN_SHARE * least / share
        for token, number in after.items():
            candidate = found.get(token)
            if candidate is None:
                if number < needed:
                    continue
                candidate = found[token] = Candidate(0.0, PROMPT, log1p(total))
            candidate.probability += share * number
    return left
