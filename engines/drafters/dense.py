"""The dense drafter: what followed when the model was in a similar state (DReSD).

Among past states that led to the token just sampled, it looks up the nearest to the current one and
drafts their continuations (Gritta et al. 2025, section 3.5, with the filter inside the search). The
weight of each is

    exp((similarity − 1) / TEMPERATURE + MATCH · (matching tokens − LOOK_BACK) + THIS_CHAT)

where the last term applies to states of the current chat: elsewhere, weight 1 means a state equal
to the current one after the same words.

The continuations form a trie, every node of which gets an estimate of P(token | its parent was
emitted): the weight of the continuations through the node over the weight of those through its
parent, as kNN-LM estimates a next token (Khandelwal et al. 2020, equation 2). The total includes
the weight of "none of these", which halves with every token of the path. The trie is grown
best-first; the budget decides its width and depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import exp

from datastores.dense.memory import LOOK_BACK, DenseMemory, Matches
from engines.draft_tree import DENSE, DraftTree, root_only
from engines.step import Context, Step

NEIGHBOURS = 32
"""Most states retrieved. 64 gained nothing; 3, the paper's number of drafts, lost 1 to 2 %."""
MIN_NEIGHBOURS, NEIGHBOURS_PER_ROW = 8, 0.5
"""States retrieved for any draft, and more for each requested row: if rows are few, votes of many
neighbours do not make them better."""
MAX_LENGTH = 60
"""Longest continuation in tokens."""
TEMPERATURE = 0.2
"""Scale of the similarity. On the embedded model 0.1 gives drafts that are shorter by 2 % at 8 rows
and by 5 % at 60; 0.4 is as good."""
MATCH = 0.5
"""Weight, as a logarithm, of each of up to `LOOK_BACK` matching tokens before the root."""
THIS_CHAT = 1.0
"""Weight, as a logarithm, of states of the current chat."""
NONE_WEIGHT = 0.02
"""Weight of "none of these" at the root, where a perfect match weighs 1."""
NONE_DECAY = 0.5
"""Decay of `NONE_WEIGHT` with each token of the path."""
MIN_PROBABILITY = 0.005
"""Path probability below which a row is not worth proposing."""


class DenseDrafter:
    """Drafts from a dense index.

    Attributes:
        neighbours: most states retrieved. DReSD takes 3 for greedy answers and 10 for sampled ones
            (section 5.4).
        longest: most tokens of each continuation. DReSD takes 20 or 10.
    """

    name = "dense"
    top_tokens_needed = 0

    def __init__(self, memory: DenseMemory) -> None:
        self.neighbours = NEIGHBOURS
        self.longest = MAX_LENGTH
        self._memory = memory

    def begin(self, context: Context) -> None:
        """Nothing to do: every draft is searched anew."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The trie of the neighbours' continuations; the root alone until the index is ready, and
        where the state is unknown."""
        if not context.hidden.size:
            return root_only(context.root)
        before = context.tokens[-1 - LOOK_BACK : -1]
        length = min(limit, self.longest)
        count = min(self.neighbours, MIN_NEIGHBOURS + int(NEIGHBOURS_PER_ROW * limit))
        matches = self._memory.search(context.hidden, context.root, before, count, length)
        if matches is None or not matches.similarities:
            return root_only(context.root)
        supports = [max(0.0, similarity) for similarity in matches.similarities]
        weights = _weights(matches)
        return grow(context.root, matches.continuations, weights, supports, DENSE, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: `engines.state_recorder` passes the answer to the index."""


def _weights(matches: Matches) -> list[float]:
    """The weight of each neighbour, in (0, e]."""
    neighbours = zip(matches.similarities, matches.suffixes, matches.current, strict=True)
    return [
        exp((similarity - 1.0) / TEMPERATURE + MATCH * (suffix - LOOK_BACK) + THIS_CHAT * current)
        for similarity, suffix, current in neighbours
    ]


Entry = tuple[float, int, int, float, Sequence[int], float, int]
"""A candidate node: negative path probability, parent's row, token, probability, continuations
through it, their weight, depth. Parent and token break ties."""


def grow(
    root: int,
    continuations: Sequence[Sequence[int]],
    weights: Sequence[float],
    supports: Sequence[float],
    origin: int,
    limit: int,
) -> DraftTree:
    """A tree of at most `limit` rows besides the root, added best-first by path probability.

    Args:
        continuations: tokens that followed the root, all equally long; a negative number ends one.
        weights: of each continuation, 1 for one whose state equals the current one.
        supports: of each continuation, falling; a row gets that of the first that passes it.
    """
    tree = root_only(root)
    heap: list[Entry] = []
    _branch(heap, continuations, weights, range(len(weights)), sum(weights), 0, 1.0, 0)
    while heap:
        negative, parent, token, probability, members, mass, depth = heappop(heap)
        row = tree.add(parent, token, origin, probability, supports[members[0]])
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
    """Push the children of a node at `depth`; `members` pass through it and weigh `mass`."""
    if not members or depth == len(continuations[0]):
        return
    total = mass + NONE_WEIGHT * NONE_DECAY**depth
    for token, group in _groups([continuations[member][depth] for member in members], members):
        share = mass if len(group) == len(members) else sum(weights[i] for i in group)
        probability = share / total
        if token >= 0 and path * probability >= MIN_PROBABILITY:
            entry = (-path * probability, parent, token, probability, group, share, depth + 1)
            heappush(heap, entry)


def _groups(tokens: list[int], members: Sequence[int]) -> Iterable[tuple[int, Sequence[int]]]:
    """Members by token. They usually all agree, which is cheap to find out."""
    if tokens.count(tokens[0]) == len(tokens):
        return ((tokens[0], members),)
    groups: dict[int, list[int]] = {}
    for token, member in zip(tokens, members, strict=True):
        groups.setdefault(token, []).append(member)
    return groups.items()
