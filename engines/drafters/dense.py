"""The dense drafter: what followed when the model was in a similar state (DReSD).

Of all past states that led to the token just sampled, the nearest to the current one are looked up,
and their continuations drafted (Gritta et al. 2025, section 3.5, with the filter inside the
search). Each weighs

    exp((similarity − 1) / TEMPERATURE + MATCH · (matching tokens − LOOK_BACK) + THIS_CHAT)

so that 1 means a state equal to the current one after the same words; the
last term is for the chat that is being written.

The continuations form a trie, every node of which gets an estimate of P(token | its parent was
emitted): the weight of those that go through the node over the weight of those that reached its
parent, as kNN-LM estimates a next token (Khandelwal et al. 2020, equation 2). The total includes
the weight of "none of these", which halves with every token of the path. The trie is grown
best-first; how wide and how deep is decided by the budget.

Owns that estimate and the order of growth. Refuses to know how states are recorded
(`engines.state_recorder`) and searched (`datastores.dense`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import exp

from datastores.dense.memory import LOOK_BACK, DenseMemory, Matches
from engines.draft_tree import DENSE, DraftTree, root_only
from engines.step import Context, Step

NEIGHBOURS = 32
"""States asked for at most. 64 gained nothing; 3, the paper's number of drafts, lost 1 to 2 %."""
MIN_NEIGHBOURS, NEIGHBOURS_PER_ROW = 8, 0.5
"""States asked for even if no row were wanted, and more for each row that is: of few rows, the ones
that many neighbours vote for are not better."""
MAX_LENGTH = 60
"""Tokens of a continuation that are looked at."""
TEMPERATURE = 0.2
"""How fast weight falls with similarity. On the embedded model 0.1 gives drafts that are shorter by
2 % at 8 rows and by 5 % at 60; 0.4 is as good."""
MATCH = 0.5
"""Weight, as a logarithm, of each of up to `LOOK_BACK` matching tokens before the root."""
THIS_CHAT = 1.0
"""Weight, as a logarithm, of what this chat said itself."""
NONE_WEIGHT = 0.02
"""Weight of "none of these" at the root, where a perfect match weighs 1."""
NONE_DECAY = 0.5
"""What one more token of the path leaves of it."""
MIN_PROBABILITY = 0.005
"""Path probability below which a row is not worth proposing."""


class DenseDrafter:
    """Drafts from a dense index.

    Attributes:
        neighbours: states whose continuations are looked at. DReSD takes 3 for greedy answers and
            10 for sampled ones…
        longest: …and 20 or 10 tokens of each (section 5.4).
    """

    name = "dense"
    top_tokens_needed = 0

    def __init__(self, memory: DenseMemory) -> None:
        self.neighbours = NEIGHBOURS
        self.longest = MAX_LENGTH
        self._memory = memory

    def begin(self, context: Context) -> None:
        """Nothing to do: every draft is searched for afresh."""

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
        """Nothing to do: what is said reaches the index through `engines.state_recorder`."""


def _weights(matches: Matches) -> list[float]:
    """How much each neighbour resembles the present, in (0, e]."""
    neighbours = zip(matches.similarities, matches.suffixes, matches.current, strict=True)
    return [
        exp((similarity - 1.0) / TEMPERATURE + MATCH * (suffix - LOOK_BACK) + THIS_CHAT * current)
        for similarity, suffix, current in neighbours
    ]


Entry = tuple[float, int, int, float, Sequence[int], float, int]
"""A candidate node: minus its path probability, its parent's row, its token, its probability, the
continuations through it, their weight, its depth. Parent and token break ties."""


def grow(
    root: int,
    continuations: Sequence[Sequence[int]],
    weights: Sequence[float],
    supports: Sequence[float],
    origin: int,
    limit: int,
) -> DraftTree:
    """A tree of at most `limit` rows beside the root, added best-first by path probability.

    Args:
        continuations: tokens that followed the root, all equally long; a negative number ends one.
        weights: of each continuation, 1 for one whose state equals the present one.
        supports: of each continuation, falling; a row gets that of the first that goes through it.
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
    """Push the children of a node `depth` tokens deep, through which `members` go, who weigh `mass`
    together."""
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
    """Members by their token. Mostly they all agree, which is cheap."""
    if tokens.count(tokens[0]) == len(tokens):
        return ((tokens[0], members),)
    groups: dict[int, list[int]] = {}
    for token, member in zip(tokens, members, strict=True):
        if token in groups:
            groups[token].append(member)
        else:
            groups[token] = [member]
    return groups.items()
