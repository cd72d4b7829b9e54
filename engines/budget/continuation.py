"""Continuation: a second round of proposals, at a leaf of a model's draft.

In the first round every drafter starts at the root, so a draft model's two accurate tokens end
where n-grams may know the next twenty. In the second round, the other drafters are consulted with
the path to the most probable leaf appended to the context, as if its tokens had been emitted. Their
proposals are drafts like any other: P(token | its parent was emitted), merged, calibrated and
chosen as usual. On recorded answers with an oracle that drafts two tokens, each correct with 0.6 to
0.8, n-grams that continue it add 2 to 4 % to the tokens per step at 4 rows and 5 to 8 % at 16.

Only leaves of models are continued: n-grams that continued each other changed the tokens per step
by -0.2 to -0.7 %. The second round must earn its own time: each drafter has a backoff for it, based
on what it adds to the value of the whole draft.

The dense index has no key there, as the state after a drafted token is unknown. Keys of the true
states would add .3 % to the tokens per step at n-grams' leaves, and 1 to 3 % to what n-grams add at
leaves of a model that is right with 0.8 (SmolLM2-135M and Qwen2.5-Coder-1.5B, 8 and 16 rows); keys
predicted by a linear map from the last key and each token, whose cosine with the true one is .72
after two tokens, 0 to 2 %, 1 % on average, so none are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.selection import MergedDraft, consult
from engines.draft_tree import MODELS
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal

UNKNOWN_STATE = np.empty(0, np.float32)
"""The target has not computed the state after a drafted token."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A row that a model proposed and no drafter has continued.

    Attributes:
        tokens: the path from the root's child to the row.
        proposers: names of the drafters that proposed the row.
        limit: rows that may follow it within the limit of the whole draft.
    """

    tokens: tuple[int, ...]
    proposers: frozenset[str]
    limit: int

    def drafters(self, drafters: Sequence[Drafter]) -> list[Drafter]:
        """Those that may continue it; a drafter that proposed a leaf has ended its own draft."""
        return [drafter for drafter in drafters if drafter.name not in self.proposers]

    def context(self, context: Context) -> Context:
        """A copy of `context` with the path appended: drafters index the tokens of the original."""
        return replace(context, tokens=[*context.tokens, *self.tokens], hidden=UNKNOWN_STATE)


def find_leaf(merged: MergedDraft, rows: Sequence[int], limit: int) -> Leaf | None:
    """The most probable leaf of a model among `rows`, which are sorted by falling P.

    The rows that follow it are at most as probable, so it and the rows before it count towards
    `limit`.
    """
    for rank, row in enumerate(rows, 1):
        if merged.tree.origins[row] & MODELS and not merged.proposers[row]:
            names = frozenset(merged.drafters(row))
            return Leaf(_path(merged, row), names, limit - rank) if rank < limit else None
    return None


def _path(merged: MergedDraft, row: int) -> tuple[int, ...]:
    tokens: list[int] = []
    while row:
        tokens.append(merged.tree.tokens[row])
        row = merged.tree.parents[row]
    return tuple(reversed(tokens))


class SecondRound:
    """Consults drafters at the most probable leaf, as long as each is worth its time."""

    def __init__(self) -> None:
        self._backoffs = DrafterBackoffs()

    def propose(
        self,
        drafters: Sequence[Drafter],
        context: Context,
        merged: MergedDraft,
        rows: Sequence[int],
        limit: int,
        vocabulary: int,
    ) -> list[Proposal]:
        """Drafts after a leaf, the cheapest drafter's first; empty if there is none to continue.

        Args:
            rows: those that would be verified now, by falling P: no other leaf is continued.
            limit: rows of the whole draft.
        """
        leaf = find_leaf(merged, rows, limit)
        if leaf is None:
            return []
        able = [
            drafter
            for drafter in leaf.drafters(drafters)
            if self._backoffs[drafter.name].should_consult()
        ]
        if not able:
            return []
        able.sort(key=lambda drafter: self._backoffs[drafter.name].seconds)
        extended = leaf.context(context)
        return [consult(one, extended, leaf.limit, vocabulary, leaf.tokens) for one in able]

    def record(
        self,
        proposals: Sequence[Proposal],
        merged: MergedDraft,
        added: Mapping[int, float],
        gain: float,
        planning: float,
        rate: float,
    ) -> None:
        """Record that `proposals` have added `gain` tokens to the value of the draft.

        Args:
            added: P of the rows that they added and that are verified. A row is credited to the
                cheapest drafter that proposed it.
            planning: seconds spent on merging and choosing again.
            rate: tokens per second without drafts.
        """
        shares = dict.fromkeys((proposal.drafter for proposal in proposals), 0.0)
        for row, probability in added.items():
            names = merged.drafters(row)
            shares[next(name for name in shares if name in names)] += probability
        total = sum(shares.values())
        for proposal in proposals:
            part = gain * shares[proposal.drafter] / total if total else 0.0
            seconds = proposal.seconds + planning / len(proposals)
            self._backoffs[proposal.drafter].record(part, seconds, rate)
