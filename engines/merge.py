"""Merging drafts: the proposals of several drafters become one trie, and each row its features.

Owns what calibration looks at. Refuses to know how probable a row is in the end
(`engines.calibration`) or how many rows are worth verifying (`engines.budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p

from engines.step import Proposal
from engines.tree import DraftTree, root_only

DRAFTERS = ("prompt", "recycle", "crest", "dense", "student", "rest")
"""Drafters with features of their own, by name; the order is part of the saved state's meaning."""
PER_DRAFTER = ("present", "logit", "support", "passed")
COMMON = ("bias", "depth", "heat", "first", "second", "third")
FEATURES = len(COMMON) + len(PER_DRAFTER) * len(DRAFTERS)
"""Columns of the features: bias, depth, temperature, whether the row is at depth 1, 2 or 3
(with a bias of their own for each, P along a path is right on average, although a text that has
followed a draft for long goes on doing so); then, for each drafter: whether it proposed the row,
its own log odds, its evidence, and whether it proposed only siblings of the row."""

BASE = {name: len(COMMON) + len(PER_DRAFTER) * index for index, name in enumerate(DRAFTERS)}
FIRST = tuple(COMMON.index(name) for name in ("first", "second", "third"))
DEEP = 0.1
"""What a depth of 1 counts."""
LEAST = 0.005
"""A drafter is taken as no surer than this of what it says or does not say."""

Word = tuple[int, float, float]
"""What a drafter says of a row: the first of its columns, its log odds, ln(1 + evidence)."""


@dataclass(frozen=True, slots=True)
class Merged:
    """A trie of all proposals (not yet estimated) and its features, of which most are 0.

    In plain Python: between two passes of a large model the caches are cold, and each call of NumPy
    costs several microseconds. A matrix of all features took 0.08 ms more for each draft of 8 rows.

    Attributes:
        heat: the sampler's temperature.
        depths: of each row.
        said: of each row, what was said of it.
        spoke: of each row, a bit set of the drafters, by first column, that proposed a child of it.
    """

    tree: DraftTree
    heat: float
    depths: list[int]
    said: list[list[Word]]
    spoke: list[int]

    def features(self, row: int) -> list[tuple[int, float]]:
        """The columns that are not 0 of a row beside the root, and what they are."""
        depth, spoke = self.depths[row], self.spoke[self.tree.parents[row]]
        columns = [(0, 1.0), (1, depth * DEEP), (2, self.heat)]
        if depth <= len(FIRST):
            columns.append((FIRST[depth - 1], 1.0))
        for base, odds, evidence in self.said[row]:
            columns += ((base, 1.0), (base + 1, odds), (base + 2, evidence))
            spoke ^= 1 << base
        columns += [(base + 3, 1.0) for base in BASE.values() if spoke >> base & 1]
        return columns

    def scores(self, weights: Sequence[float]) -> list[float]:
        """The sum of weights [FEATURES] × features of each row; 0 for the root."""
        deep = [
            weights[0]
            + weights[1] * depth * DEEP
            + weights[2] * self.heat
            + (weights[FIRST[depth - 1]] if 1 <= depth <= len(FIRST) else 0.0)
            for depth in range(max(self.depths) + 1)
        ]
        passed = {
            bits: sum(weights[base + 3] for base in BASE.values() if bits >> base & 1)
            for bits in set(self.spoke)
        }
        scores, parents = [0.0], self.tree.parents
        for row in range(1, len(parents)):
            score = deep[self.depths[row]] + passed[self.spoke[parents[row]]]
            for base, odds, evidence in self.said[row]:
                present, by_odds, by_evidence, missed = weights[base : base + 4]
                score += present + by_odds * odds + by_evidence * evidence - missed
            scores.append(score)
        return scores


def merge(root: int, proposals: Sequence[Proposal], temperature: float) -> Merged:
    """One trie under `root` in which equal paths are one, with each drafter's word on every row."""
    merged = Merged(root_only(root), temperature, [0], [[]], [0])
    index: dict[tuple[int, int], int] = {}
    for proposal in proposals:
        _graft(merged, index, proposal)
    return merged


def _graft(merged: Merged, index: dict[tuple[int, int], int], proposal: Proposal) -> None:
    """Add a proposal; `index` finds a row by its parent and token."""
    tree, said, spoke = merged.tree, merged.said, merged.spoke
    draft, base = proposal.tree, BASE[proposal.drafter]
    rows = [0] * len(draft)
    for old in range(1, len(draft)):
        parent, token = rows[draft.parents[old]], draft.tokens[old]
        row = index.get((parent, token), 0)
        if row:
            tree.sources[row] |= draft.sources[old]
        else:
            row = index[parent, token] = tree.add(parent, token, draft.sources[old], 0.0)
            merged.depths.append(merged.depths[parent] + 1)
            said.append([])
            spoke.append(0)
        rows[old] = row
        spoke[parent] |= 1 << base
        chance = min(max(draft.probabilities[old], LEAST), 1.0 - LEAST)
        said[row].append((base, log(chance / (1.0 - chance)), log1p(draft.supports[old])))
