"""Choosing rows of a merged draft: by falling P, as many as pay, pruned to a tree of their own.

Pure functions of trees, probabilities and costs; `engines.budget.adaptive` says which costs and
which rate.

Merging drafts: the proposals of several drafters become one trie, and each row its features.

Owns what calibration looks at. Refuses to know how probable a row is in the end
(`engines.budget.acceptance_model`) or how many rows are worth verifying
(`engines.budget.adaptive`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, log1p
from time import perf_counter

from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import LossLimiter
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, Step

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


def choose(
    gains: Sequence[float], table: Sequence[float], rate: float, seconds: float
) -> tuple[int, float]:
    """The n that maximises τ(n) − λ·(V(n + 1) + t_draft), and what drafting would lose if n is 0.

    Args:
        gains: P of the rows in order.
        table: V by number of rows, in seconds.
        rate: λ, tokens per second.
        seconds: t_draft, spent already: it weighs in the loss only.
    """
    tau, chosen, best_value, best_speed = 1.0, 0, 1.0 - rate * table[1], 0.0
    for count, gain in enumerate(gains, 1):
        tau += gain
        value = tau - rate * table[count + 1]
        if value > best_value:
            chosen, best_value = count, value
        best_speed = max(best_speed, tau / (table[count + 1] + seconds))
    loss = max(0.0, 1.0 - best_speed * table[1]) if gains and not chosen else 0.0
    return chosen, loss


def affordable(
    chosen: int, gains: Sequence[float], table: Sequence[float], purse: LossLimiter
) -> int:
    """The most rows, up to `chosen`, whose loss the purse covers.

    A pass wins back what it costs with as many accepted tokens; along a chain the P of the last of
    them is the chance of that.
    """
    for rows in range(chosen, 0, -1):
        extra = table[rows + 1] / table[1] - 1.0
        needed = min(max(ceil(extra), 1), rows)
        if purse.covers(extra, gains[needed - 1]):
            return rows
    return 0


def consult(drafter: Drafter, context: Context, limit: int, vocabulary: int) -> Proposal:
    """Ask one drafter, on the clock.

    What is no token of the target's (a store may be damaged) would end the answer: a proposal with
    one is not heard.
    """
    started = perf_counter()
    tree = drafter.propose(context, limit)
    if max(tree.tokens) >= vocabulary or min(tree.tokens) < 0:
        tree = root_only(context.root)
    return Proposal(drafter.name, tree, perf_counter() - started)


def in_order(tree: DraftTree, paths: list[float], chains_only: bool) -> list[int]:
    """Rows beside the root by falling P, parents before children; one path if `chains_only`."""
    # P never grows along a path and the sort is stable, so a parent comes before its children.
    order = sorted(range(1, len(tree)), key=lambda row: -paths[row])
    if not chains_only:
        return order
    path, last = [], 0
    for row in order:
        if tree.parents[row] == last:
            path.append(row)
            last = row
    return path


def prune(tree: DraftTree, rows: Sequence[int]) -> DraftTree:
    """The tree of the root and `rows` alone, in their order."""
    kept = DraftTree([tree.tokens[0]])
    place = {0: 0}
    for row in rows:
        parent = place[tree.parents[row]]
        place[row] = kept.add(
            parent, tree.tokens[row], tree.sources[row], tree.probabilities[row], tree.supports[row]
        )
    return kept


def record(costs: CostModel, step: Step) -> None:
    """Learn the cost of a cycle, the drafters' own time aside."""
    if not step.prefill:
        seconds = step.timings.total - step.timings.draft
        costs.observe(len(step.tree), step.position, seconds)


def source_bits(tree: DraftTree) -> int:
    bits = 0
    for sources in tree.sources:
        bits |= sources
    return bits
