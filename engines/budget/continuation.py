"""Drafters continue a model's draft: a second round of proposals, at a leaf of the first one.

In the first round every drafter starts at the root, so a draft model's two sure tokens end where
the history may know the next twenty. In the second, the other drafters are consulted on the context
with the path to the most probable leaf behind it, as if its tokens had been emitted. What they
propose there is a draft as any other: P(token | its parent was emitted), merged, calibrated and
chosen likewise. On recorded answers with an oracle that drafts two tokens, each right with 0.6 to
0.8, n-grams that continue it add 2 to 4 % to the tokens per step at 4 rows and 5 to 8 % at 16.

Only models' leaves are continued. n-grams that continued each other changed the tokens per step by
-0.2 to -0.7 %: what they do not propose at the root they seldom know better a few tokens on.

The second round must earn its own time: each drafter has a backoff for it, which counts what it
added to the value of the whole draft.

Owns which leaf is continued, by whom, on what context, and whether that pays. Refuses to know how
rows are chosen (`engines.budget.policies`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.selection import BASE, MergedDraft, consult
from engines.draft_tree import MODELS
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal

UNKNOWN_STATE = np.empty(0, np.float32)
"""The target has not computed the state behind a drafted token."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A row that a model proposed and no drafter has continued.

    Attributes:
        tokens: of the path from the root's child to the row.
        proposers: names of the drafters that proposed the row.
        limit: rows that may follow it within the budget's limit.
    """

    tokens: tuple[int, ...]
    proposers: frozenset[str]
    limit: int

    def drafters(self, drafters: Sequence[Drafter]) -> list[Drafter]:
        """Those that may continue it: a drafter that proposed a leaf has ended its own draft."""
        return [drafter for drafter in drafters if drafter.name not in self.proposers]

    def context(self, context: Context) -> Context:
        """`context` with the path behind it. A copy: drafters index what the other one holds."""
        tokens = [*context.tokens, *self.tokens]
        price = context.row_price
        return Context(tokens, UNKNOWN_STATE, context.temperature, row_price=price)


def find_leaf(merged: MergedDraft, rows: Sequence[int], limit: int) -> Leaf | None:
    """The most probable leaf of a model among `rows`, which come in order of P, if there is one.

    Rows behind it are at most as probable, so that it and those before it take from `limit`.
    """
    for rank, row in enumerate(rows, 1):
        if merged.tree.origins[row] & MODELS and not merged.proposers[row]:
            names = _proposers(merged, row)
            return Leaf(_path(merged, row), names, limit - rank) if rank < limit else None
    return None


def _proposers(merged: MergedDraft, row: int) -> frozenset[str]:
    bases = {base for base, _, _ in merged.evidence[row]}
    return frozenset(name for name, base in BASE.items() if base in bases)


def _path(merged: MergedDraft, row: int) -> tuple[int, ...]:
    tokens: list[int] = []
    while row:
        tokens.append(merged.tree.tokens[row])
        row = merged.tree.parents[row]
    return tuple(reversed(tokens))


class SecondRound:
    """Consults drafters at the most probable leaf, each while that is worth its time."""

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
        """Drafts behind a leaf, the cheapest drafter's first; none if there is none to continue.

        Args:
            rows: those that would be verified now, in order of P: no other leaf is continued.
            limit: of the rows of the whole draft.
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
        behind = leaf.context(context)
        return [consult(one, behind, leaf.limit, vocabulary, leaf.tokens) for one in able]

    def record(
        self,
        proposals: Sequence[Proposal],
        merged: MergedDraft,
        added: Mapping[int, float],
        gain: float,
        planning: float,
        rate: float,
    ) -> None:
        """Record that the round of `proposals` has added `gain` tokens to the draft's value.

        Args:
            added: P of the rows that it added and that are verified. A row counts for the cheapest
                drafter that proposed it.
            planning: seconds that merging and choosing anew took.
            rate: λ, tokens per second.
        """
        shares = dict.fromkeys((proposal.drafter for proposal in proposals), 0.0)
        for row, probability in added.items():
            names = _proposers(merged, row)
            shares[next(name for name in shares if name in names)] += probability
        total = sum(shares.values())
        for proposal in proposals:
            part = gain * shares[proposal.drafter] / total if total else 0.0
            seconds = proposal.seconds + planning / len(proposals)
            self._backoffs[proposal.drafter].record(part, seconds, rate)
