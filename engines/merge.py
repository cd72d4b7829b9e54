"""Merging drafts: the proposals of several drafters become one trie, and each row its features.

Owns what calibration looks at. Refuses to know how probable a row is in the end
(`engines.calibration`) or how many rows are worth verifying (`engines.budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engines.step import Proposal
from engines.tree import DraftTree, root_only

Matrix = NDArray[np.float64]
Columns = NDArray[np.intp]

DRAFTERS = ("prompt", "recycle", "crest", "dense", "student", "rest")
"""Drafters with features of their own, by name; the order is part of the saved state's meaning."""
PER_DRAFTER = ("present", "logit", "support", "passed")
COMMON = ("bias", "depth", "heat", "first", "second", "third")
FEATURES = len(COMMON) + len(PER_DRAFTER) * len(DRAFTERS)
"""Columns of the feature matrix: bias, depth, temperature, whether the row is at depth 1, 2 or 3
(with a bias of their own for each, P along a path is right on average, although a text that has
followed a draft for long goes on doing so); then, for each drafter: whether it proposed the row,
its own log odds, its evidence, and whether it proposed only siblings of the row."""

BASE = {name: len(COMMON) + len(PER_DRAFTER) * index for index, name in enumerate(DRAFTERS)}


@dataclass(frozen=True, slots=True)
class Merged:
    """A trie of all proposals (not yet estimated) and its features [rows, FEATURES]."""

    tree: DraftTree
    features: Matrix


def merge(root: int, proposals: Sequence[Proposal], temperature: float) -> Merged:
    """One trie under `root` in which equal paths are one, with each drafter's word on every row."""
    tree = root_only(root)
    depths = [0]
    index: dict[tuple[int, int], int] = {}
    where: list[int] = []
    base: list[int] = []
    chances: list[float] = []
    supports: list[float] = []
    for proposal in proposals:
        draft = proposal.tree
        where += _graft(tree, depths, index, draft)
        base += [BASE[proposal.drafter]] * draft.drafted
        chances += draft.probabilities[1:]
        supports += draft.supports[1:]
    features = np.zeros((len(tree), FEATURES))
    features[:, 0] = 1.0
    depth = np.array(depths)
    features[:, 1] = depth * 0.1
    features[:, 2] = temperature
    features[:, 3:6] = depth[:, None] == (1, 2, 3)
    if where:
        parents = np.array(tree.parents)
        _describe(features, parents, np.array(where), np.array(base), chances, supports)
    return Merged(tree, features)


def _graft(
    tree: DraftTree, depths: list[int], index: dict[tuple[int, int], int], draft: DraftTree
) -> list[int]:
    """Add `draft` to `tree`; returns for each row of the draft, the root aside, its row there."""
    rows = [0] * len(draft)
    for old in range(1, len(draft)):
        key = (rows[draft.parents[old]], draft.tokens[old])
        row = index.get(key, 0)
        if row:
            tree.sources[row] |= draft.sources[old]
        else:
            row = index[key] = tree.add(key[0], key[1], draft.sources[old], 0.0)
            depths.append(depths[key[0]] + 1)
        rows[old] = row
    return rows[1:]


def _describe(
    features: Matrix,
    parents: Columns,
    where: Columns,
    base: Columns,
    chances: list[float],
    supports: list[float],
) -> None:
    """Fill in what drafters said: entry i is of the drafter at column base[i], on row where[i].

    One call for all drafters: between two passes of a large model the caches are cold, and each
    call of NumPy costs several microseconds.
    """
    odds = np.array(chances).clip(0.005, 0.995)
    features[where, base] = 1.0
    features[where, base + 1] = np.log(odds / (1.0 - odds))
    features[where, base + 2] = np.log1p(supports)
    spoke = np.zeros_like(features)
    spoke[parents[where], base] = 1.0
    present = slice(len(COMMON), None, len(PER_DRAFTER))
    passed = slice(len(COMMON) + 3, None, len(PER_DRAFTER))
    features[1:, passed] = spoke[parents[1:], present] - features[1:, present]
