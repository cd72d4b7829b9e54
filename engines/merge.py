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

DRAFTERS = ("prompt", "recycle", "crest", "dense", "student", "rest")
"""Drafters with features of their own, by name; the order is part of the saved state's meaning."""
PER_DRAFTER = ("present", "logit", "support", "passed")
COMMON = ("bias", "depth", "heat")
FEATURES = len(COMMON) + len(PER_DRAFTER) * len(DRAFTERS)
"""Columns of the feature matrix: bias, depth, temperature; then, for each drafter: whether it
proposed the row, its own log odds, its evidence, and if it proposed only siblings of the row."""

BASE = {name: len(COMMON) + len(PER_DRAFTER) * index for index, name in enumerate(DRAFTERS)}


@dataclass(frozen=True, slots=True)
class Merged:
    """A trie of all proposals (not yet estimated) and its features [rows, FEATURES]."""

    tree: DraftTree
    features: Matrix


def merge(root: int, proposals: Sequence[Proposal], temperature: float) -> Merged:
    """One trie under `root` in which equal paths are one, with each drafter's word on every row."""
    tree = root_only(root)
    index: dict[tuple[int, int], int] = {}
    maps = [_graft(tree, index, proposal.tree) for proposal in proposals]
    features = np.zeros((len(tree), FEATURES))
    features[:, 0] = 1.0
    features[:, 1] = np.minimum(tree.depths(), 10)
    features[:, 1] *= 0.1
    features[:, 2] = temperature
    parents = np.array(tree.parents)
    for proposal, rows in zip(proposals, maps, strict=True):
        _describe(features, parents, proposal, rows)
    return Merged(tree, features)


def _graft(tree: DraftTree, index: dict[tuple[int, int], int], draft: DraftTree) -> list[int]:
    """Add `draft` to `tree`; returns for each row of the draft its row in the tree."""
    rows = [0] * len(draft)
    for old in range(1, len(draft)):
        key = (rows[draft.parents[old]], draft.tokens[old])
        row = index.get(key, 0)
        if row:
            tree.sources[row] |= draft.sources[old]
        else:
            row = index[key] = tree.add(key[0], key[1], draft.sources[old], 0.0)
        rows[old] = row
    return rows


def _describe(
    features: Matrix, parents: NDArray[np.intp], proposal: Proposal, rows: list[int]
) -> None:
    base = BASE[proposal.drafter]
    draft = proposal.tree
    where = np.array(rows[1:], dtype=np.intp)
    chances = np.clip(np.array(draft.probabilities[1:]), 0.005, 0.995)
    features[where, base] = 1.0
    features[where, base + 1] = np.log(chances / (1.0 - chances))
    features[where, base + 2] = np.log1p(draft.supports[1:])
    spoke = np.zeros(len(parents) + 1)
    spoke[parents[where]] = 1.0
    features[1:, base + 3] = spoke[parents[1:]] - features[1:, base]
