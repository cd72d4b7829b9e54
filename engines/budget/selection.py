"""From proposals to the tree that is verified: merge, sort, choose the number of rows, prune.

The proposals of several drafters become one trie, and each row gets its features, from which
calibration learns. Rows are taken by falling P, as many as pay, and pruned to a tree of their own.
All functions are pure functions of trees, probabilities and costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, log, log1p
from time import perf_counter

from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import LossLimiter
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.step import Context, Proposal, Step

DRAFTER_NAMES = (
    *("prompt", "recycle", "crest", "dense", "draft-model", "rest", "mtp", "head", "suffix"),
)
"""Drafters with features of their own, by name. The order defines the columns of saved weights."""
PER_DRAFTER = ("present", "logit", "support", "passed_over")
COMMON = ("bias", "depth", "temperature", "first", "second", "third")
FEATURES = len(COMMON) + len(PER_DRAFTER) * len(DRAFTER_NAMES)
"""Columns of the features: bias, depth, temperature, whether the row is at depth 1, 2 or 3 (with a
bias for each of these, P along a path is right on average, although a text that has followed a
draft for long tends to follow it further); then, for each drafter: whether it proposed the row, its
own log odds, its evidence, and whether it proposed only siblings of the row."""

BASE = {name: len(COMMON) + len(PER_DRAFTER) * index for index, name in enumerate(DRAFTER_NAMES)}
NAMES = {base: name for name, base in BASE.items()}
DEPTH_COLUMNS = tuple(COMMON.index(name) for name in ("first", "second", "third"))
DEPTH_SCALE = 0.1
"""Value of the depth feature for each token of depth."""
MARGIN = 1.2
"""Factor by which the expected gain of rows must exceed their cost. Rows that would just pay bring
nothing on average and lose where the estimate is wrong: with 1, 1.2 and 1.5, MT-Bench's questions
take 1.063, 1.094 and 1.060 of plain speed, edited code 1.44, 1.42 and 1.34 (recorded answers of
SmolLM2-135M at the costs of its Q4_1 on two cores)."""
MIN_PROBABILITY = 0.005
"""Drafters' own probabilities are clamped between this and 1 minus this."""

Evidence = tuple[int, float, float]
"""One drafter's estimate of a row: the first of its columns, its log odds, ln(1 + support)."""


@cache
def passed_over(bits: int) -> tuple[tuple[int, float], ...]:
    """The columns, with values, that mark drafters `bits` as having proposed only siblings."""
    return tuple((base + 3, 1.0) for base in BASE.values() if bits >> base & 1)


@dataclass(frozen=True, slots=True)
class MergedDraft:
    """A trie of all proposals, not yet estimated, with sparse features.

    It is plain Python: between two passes of a large model the caches are cold, and each call of
    NumPy costs several microseconds. A matrix of all features took 0.08 ms more for a draft of 8
    rows.

    Attributes:
        evidence: for each row, the estimates of the drafters that proposed it.
        proposers: for each row, a bit set of the drafters, by first column, that proposed a child
            of it.
        children: for each row, token id → row.
    """

    tree: DraftTree
    temperature: float
    depths: list[int]
    evidence: list[list[Evidence]]
    proposers: list[int]
    children: list[dict[int, int]]

    def drafters(self, row: int) -> list[str]:
        """Names of the drafters that proposed a row."""
        return [NAMES[base] for base, _, _ in self.evidence[row]]

    def features(self, row: int) -> list[tuple[int, float]]:
        """The non-zero columns of a row (not the root) and their values."""
        depth, silent = self.depths[row], self.proposers[self.tree.parents[row]]
        columns = [(0, 1.0), (1, depth * DEPTH_SCALE), (2, self.temperature)]
        if depth <= len(DEPTH_COLUMNS):
            columns.append((DEPTH_COLUMNS[depth - 1], 1.0))
        for base, log_odds, support in self.evidence[row]:
            columns += ((base, 1.0), (base + 1, log_odds), (base + 2, support))
            silent ^= 1 << base
        if silent:
            columns += passed_over(silent)
        return columns

    def scores(self, weights: Sequence[float]) -> list[float]:
        """The dot product of weights [FEATURES] and features of each row; 0 for the root."""
        by_depth = [
            weights[0]
            + weights[1] * depth * DEPTH_SCALE
            + weights[2] * self.temperature
            + (weights[DEPTH_COLUMNS[depth - 1]] if 1 <= depth <= len(DEPTH_COLUMNS) else 0.0)
            for depth in range(max(self.depths) + 1)
        ]
        sibling_scores = {
            bits: sum([weights[column] for column, _ in passed_over(bits)])
            for bits in set(self.proposers)
        }
        by_drafter = {base: weights[base : base + len(PER_DRAFTER)] for base in BASE.values()}
        scores = []
        for depth, parent, evidence in zip(
            self.depths, self.tree.parents, self.evidence, strict=True
        ):
            score = by_depth[depth] + sibling_scores[self.proposers[parent]]
            for base, log_odds, support in evidence:
                present, by_odds, by_support, missed = by_drafter[base]
                score += present + by_odds * log_odds + by_support * support - missed
            scores.append(score)
        scores[0] = 0.0
        return scores


def merge(root: int, proposals: Sequence[Proposal], temperature: float) -> MergedDraft:
    """One trie under `root` in which equal paths are merged."""
    merged = MergedDraft(root_only(root), temperature, [0], [[]], [0], [{}])
    for proposal in proposals:
        graft(merged, proposal)
    return merged


def graft(merged: MergedDraft, proposal: Proposal) -> None:
    """Add a proposal to the trie, which already has the rows that it continues."""
    tree, depths, evidence = merged.tree, merged.depths, merged.evidence
    proposers = merged.proposers
    draft, base, children = proposal.tree, BASE[proposal.drafter], merged.children
    rows = [0]
    for token in proposal.after:
        rows[0] = children[rows[0]][token]
    columns = zip(
        draft.parents, draft.tokens, draft.origins, draft.probabilities, draft.supports, strict=True
    )
    next(columns)
    for draft_parent, token, origins, claimed, support in columns:
        parent = rows[draft_parent]
        row = children[parent].get(token, 0)
        if row:
            tree.origins[row] |= origins
        else:
            row = children[parent][token] = tree.add(parent, token, origins, 0.0)
            children.append({})
            depths.append(depths[parent] + 1)
            evidence.append([])
            proposers.append(0)
        rows.append(row)
        proposers[parent] |= 1 << base
        evidence[row].append((base, log_odds(claimed), log1p(support)))


def log_odds(claimed: float) -> float:
    """Log odds of a drafter's own probability, clamped."""
    if claimed < MIN_PROBABILITY:
        claimed = MIN_PROBABILITY
    elif claimed > 1.0 - MIN_PROBABILITY:
        claimed = 1.0 - MIN_PROBABILITY
    return log(claimed / (1.0 - claimed))


def with_reevaluations(
    table: Sequence[float], gains: Sequence[float], rollback_rows: int, reevaluation: float
) -> Sequence[float]:
    """`table` with the expected cost of re-evaluations, where rejected rows cannot all be dropped
    in place.

    Of a chain with P `gains`, the walk keeps exactly p rows, the root included, with probability
    gains[p - 2] - gains[p - 1]. If more than `rollback_rows` are then to be dropped, the p rows
    are re-evaluated, at `reevaluation` · V(p).
    """
    if len(gains) <= rollback_rows:
        return table
    priced = list(table)
    seconds, reached = 0.0, 1.0
    for kept, gain in enumerate(gains[: len(gains) - rollback_rows], 1):
        seconds += (reached - gain) * reevaluation * table[kept]
        reached = gain
        priced[kept + rollback_rows + 1] += seconds
    return priced


def choose_count(gains: Sequence[float], table: Sequence[float]) -> int:
    """The n that maximises τ(n) ÷ V(n + 1), where the cost of added rows counts `MARGIN` times.

    The time of drafting is already spent.

    Args:
        gains: P of the rows, falling.
        table: V by number of rows.
    """
    tau, chosen, best = 1.0, 0, 1.0 / table[1]
    for count, gain in enumerate(gains, 1):
        tau += gain
        rate = tau / (table[1] + MARGIN * (table[count + 1] - table[1]))
        if rate > best:
            chosen, best = count, rate
    return chosen


def affordable(
    chosen: int, gains: Sequence[float], table: Sequence[float], limiter: LossLimiter
) -> int:
    """The most rows, up to `chosen`, whose possible loss `limiter` allows.

    A pass pays for itself if it accepts as many tokens as it costs extra passes; along a chain,
    the P of the last of these tokens is the probability of that.
    """
    for rows in range(chosen, 0, -1):
        extra = table[rows + 1] / table[1] - 1.0
        needed = min(max(ceil(extra), 1), rows)
        if limiter.allows(extra, gains[needed - 1]):
            return rows
    return 0


def consult(
    drafter: Drafter,
    context: Context,
    limit: int,
    vocabulary: int,
    after: tuple[int, ...] = (),
) -> Proposal:
    """Consult one drafter and time it; `context` ends with the drafted tokens `after`.

    A damaged store may yield token ids outside the vocabulary, which would end the answer; such a
    proposal is dropped.
    """
    started = perf_counter()
    tree = drafter.propose(context, limit)
    if len(tree) > 1 and (max(tree.tokens) >= vocabulary or min(tree.tokens) < 0):
        tree = root_only(context.root)
    return Proposal(drafter.name, tree, perf_counter() - started, after)


def by_probability(tree: DraftTree, paths: list[float], chains_only: bool) -> list[int]:
    """Rows without the root by falling P, parents before children; one path if `chains_only`."""
    # P never grows along a path and the sort is stable, so a parent comes before its children.
    order = sorted(range(1, len(tree)), key=paths.__getitem__, reverse=True)
    if not chains_only:
        return order
    path, last = [], 0
    for row in order:
        if tree.parents[row] == last:
            path.append(row)
            last = row
    return path


def prune(tree: DraftTree, rows: Sequence[int]) -> DraftTree:
    """The tree of the root and `rows`, in their order."""
    kept = DraftTree([tree.tokens[0]])
    new_rows = {0: 0}
    for row in rows:
        parent = new_rows[tree.parents[row]]
        new_rows[row] = kept.add(
            parent, tree.tokens[row], tree.origins[row], tree.probabilities[row], tree.supports[row]
        )
    return kept


def record_cost(costs: CostModel, step: Step) -> None:
    """Learn the cost of a step without the time of drafting and observing."""
    if not step.prefill:
        reevaluation = step.timings.reevaluation
        seconds = step.timings.total - step.timings.draft - reevaluation
        costs.observe(len(step.tree), step.position, seconds)
        if reevaluation:
            costs.observe_reevaluation(len(step.path), step.position, reevaluation)
