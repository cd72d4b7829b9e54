"""The dense drafter: what followed when the model was in a similar state (DReSD).

Of all past states that led to the token just sampled, the nearest to the present one lend their
continuations (Gritta et al. 2025, section 3.5, with the filter inside the search). Each weighs

    exp((similarity − 1) / TEMPERATURE + MATCH · (matching tokens − BACK) + THIS_CHAT)

so that 1 stands for a state that cannot be told from the present one, after the same words; the
last term is for the chat that is being written. Their trie is grown best-first
(`engines.drafters.continuations`); how wide and how deep is the budget's business.

A drafter that remembers hands every state it sees to the keeper of the index, which costs the
decode thread a queue entry.
"""

from __future__ import annotations

import numpy as np

from datastores.dense_keeper import DenseKeeper
from datastores.dense_memory import BACK, DenseMemory, Recall
from engines.drafters.continuations import grow
from engines.drafters.protocol import Context
from engines.sources import DENSE
from engines.step import Step
from engines.tree import DraftTree, root_only

NEIGHBOURS = 32
"""States asked for. 64 gained nothing; 3, the paper's number of drafts, lost 1 to 2 %."""
LONGEST = 60
"""Tokens of a continuation that are looked at."""
TEMPERATURE = 0.1
"""How fast weight falls with similarity. Between 0.05 and 0.2 drafts are equally long."""
MATCH = 0.5
"""Weight, as a logarithm, of each of up to `BACK` matching tokens before the root."""
THIS_CHAT = 1.0
"""Weight, as a logarithm, of what this chat said itself."""
NEGLIGIBLE = 0.01
"""Share of the largest weight below which a continuation only costs time."""


class DenseDrafter:
    """Drafts from a dense index, and records into it what the model says.

    Attributes:
        source: what answers are filed under from the next `begin` on; None: they are not recorded.
        neighbours: states whose continuations are looked at. DReSD takes 3 for greedy answers and
            10 for sampled ones…
        longest: …and 20 or 10 tokens of each (section 5.4).
    """

    name = "dense"
    learns_from = 0

    def __init__(self, memory: DenseMemory, keeper: DenseKeeper | None = None) -> None:
        """Draft from `memory`; record through `keeper`, if there is one."""
        self.source: str | None = ""
        self.neighbours = NEIGHBOURS
        self.longest = LONGEST
        self._memory = memory
        self._keeper = keeper

    def begin(self, context: Context) -> None:
        """Open the record of this answer, or of none."""
        if self._keeper is None:
            return
        if self.source is None:
            self._keeper.leave()
        else:
            self._keeper.begin(self.source, context.tokens[:-1])

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The trie of the neighbours' continuations; nothing while the index is not ready."""
        before = context.tokens[-1 - BACK : -1]
        length = min(limit, self.longest)
        recall = self._memory.recall(context.hidden, context.root, before, self.neighbours, length)
        if recall is None or not len(recall.similarities):
            return root_only(context.root)
        weights = _weights(recall)
        kept = np.flatnonzero(weights >= NEGLIGIBLE * weights.max())
        return grow(
            context.root,
            recall.continuations[kept].tolist(),
            weights[kept].tolist(),
            recall.similarities[kept].clip(0.0).tolist(),
            DENSE,
            limit,
        )

    def observe(self, step: Step) -> None:
        """Record what was said and the states that said it."""
        if self._keeper is not None:
            self._keeper.observe(step.position, step.tokens, step.hidden)


def _weights(recall: Recall) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """How much each neighbour resembles the present, in (0, e]."""
    logarithms = (recall.similarities.astype(np.float64) - 1.0) / TEMPERATURE
    logarithms += MATCH * (recall.matches - BACK) + THIS_CHAT * recall.present
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] = np.exp(logarithms)
    return weights
