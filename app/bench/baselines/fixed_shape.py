"""Drafts of a fixed shape: a number of continuations, each of a number of tokens.

The papers verify drafts × tokens whatever they cost (DReSD section 5.4: 3 × 20 for greedy answers,
10 × 10 for sampled ones; REST's are about 10 × 6). To compare drafters at one shape, each drafter's
own tree is cut to it here. Serves benchmarks: in a chat the budget decides the shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.budget.selection import by_probability, prune
from engines.draft_tree import DraftTree
from engines.drafters.protocol import Drafter
from engines.step import Context, Step

OVERSAMPLING = 4
"""Multiple of the shape's rows that the drafter is asked for, to choose from."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Leaves of the tree, and tokens on the path to each, at most."""

    drafts: int
    length: int

    def __str__(self) -> str:
        return f"{self.drafts}x{self.length}"

    @property
    def rows(self) -> int:
        """Draft tokens at most; fewer if drafts share a prefix."""
        return self.drafts * self.length


class ShapedDrafter:
    """A drafter whose drafts are cut to a shape."""

    def __init__(self, drafter: Drafter, shape: DraftShape) -> None:
        self.name = drafter.name
        self.top_tokens_needed = drafter.top_tokens_needed
        self._drafter = drafter
        self._shape = shape

    def begin(self, context: Context) -> None:
        """A new answer starts."""
        self._drafter.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The drafter's likeliest paths, cut to the shape, whatever `limit` is."""
        return cut(self._drafter.propose(context, OVERSAMPLING * self._shape.rows), self._shape)

    def observe(self, step: Step) -> None:
        """Pass the step on to the drafter."""
        self._drafter.observe(step)


def cut(tree: DraftTree, shape: DraftShape) -> DraftTree:
    """Rows of `tree` in order of their paths' probability, while they fit into `shape`."""
    paths = tree.probabilities.copy()
    for row in range(1, len(tree)):
        paths[row] *= paths[tree.parents[row]]
    depths, leaves = tree.depths(), 0
    kept: list[int] = []
    open_at, tips = {0}, set[int]()
    for row in by_probability(tree, paths, chains_only=False):
        parent = tree.parents[row]
        lengthens = parent in tips
        if parent not in open_at or depths[row] > shape.length:
            continue
        if not lengthens and leaves == shape.drafts:
            continue
        leaves += not lengthens
        tips.discard(parent)
        tips.add(row)
        open_at.add(row)
        kept.append(row)
    return prune(tree, kept)
