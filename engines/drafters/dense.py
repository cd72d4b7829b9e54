"""The dense drafter: what followed when the model was in a similar state (DReSD).

Of all past states that led to the token just sampled, the nearest to the present one lend their
continuations (Gritta et al. 2025, section 3.5, with the filter inside the search). Each weighs

    exp((similarity − 1) / TEMPERATURE + MATCH · (matching tokens − BACK) + THIS_CHAT)

so that 1 stands for a state that cannot be told from the present one, after the same words; the
last term is for the chat that is being written. Their trie is grown best-first
(`engines.drafters.dense`); how wide and how deep is the budget's business.

A drafter that records hands every state it sees to the keeper of the index, which costs the decode
thread a queue entry.

A draft from many remembered continuations: one trie, grown where it is likeliest.

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
from math import exp

from datastores.dense.memory import BACK, DenseMemory, Matches
from datastores.dense.worker import DenseWorker
from engines.draft_tree import DENSE, DraftTree, root_only
from engines.step import Context, Step

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


NEIGHBOURS = 32
"""States asked for at most. 64 gained nothing; 3, the paper's number of drafts, lost 1 to 2 %."""
FEWEST, FOR_EACH_ROW = 8, 0.5
"""States asked for even if no row were wanted, and more for each row that is: of few rows, the ones
that many neighbours vote for are not better."""
LONGEST = 60
"""Tokens of a continuation that are looked at."""
TEMPERATURE = 0.2
"""How fast weight falls with similarity. On the embedded model 0.1 gives drafts that are shorter by
2 % at 8 rows and by 5 % at 60; 0.4 is as good."""
MATCH = 0.5
"""Weight, as a logarithm, of each of up to `BACK` matching tokens before the root."""
THIS_CHAT = 1.0
"""Weight, as a logarithm, of what this chat said itself."""


class DenseDrafter:
    """Drafts from a dense index, and records into it what the model says.

    Attributes:
        source: what answers are filed under from the next `begin` on; None: they are not recorded.
        neighbours: states whose continuations are looked at. DReSD takes 3 for greedy answers and
            10 for sampled ones…
        longest: …and 20 or 10 tokens of each (section 5.4).
    """

    name = "dense"
    top_tokens_needed = 0

    def __init__(
        self, memory: DenseMemory, keeper: DenseWorker | None = None, *, records: bool = True
    ) -> None:
        """Draft from `memory`, which `keeper`, if there is one, keeps; record through it."""
        self.source: str | None = ""
        self.neighbours = NEIGHBOURS
        self.longest = LONGEST
        self._memory = memory
        self._keeper = keeper
        self._records = records

    def begin(self, context: Context) -> None:
        """Open the record of this answer, or of none."""
        if self._keeper is None:
            return
        if self.source is None or not self._records:
            self._keeper.leave()
        else:
            self._keeper.begin(self.source, context.tokens[:-1])

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The trie of the neighbours' continuations; nothing while the index is not ready."""
        before = context.tokens[-1 - BACK : -1]
        length = min(limit, self.longest)
        count = min(self.neighbours, FEWEST + int(FOR_EACH_ROW * limit))
        recall = self._memory.recall(context.hidden, context.root, before, count, length)
        if recall is None or not recall.similarities:
            return root_only(context.root)
        supports = [max(0.0, similarity) for similarity in recall.similarities]
        weights = _weights(recall)
        return grow(context.root, recall.continuations, weights, supports, DENSE, limit)

    def observe(self, step: Step) -> None:
        """Record what was said and the states that said it."""
        if self._keeper is not None and self._records:
            self._keeper.observe(step.position, step.tokens, step.hidden)


def _weights(recall: Matches) -> list[float]:
    """How much each neighbour resembles the present, in (0, e]."""
    neighbours = zip(recall.similarities, recall.matches, recall.present, strict=True)
    return [
        exp((similarity - 1.0) / TEMPERATURE + MATCH * (matches - BACK) + THIS_CHAT * present)
        for similarity, matches, present in neighbours
    ]
