"""Choosing rows of a merged draft: by falling P, as many as pay, pruned to a tree of their own.

Pure functions of trees, probabilities and costs; `engines.budget` says which costs and which rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from time import perf_counter

from engines.costs import Costs
from engines.drafters.protocol import Context, Drafter
from engines.purse import Purse
from engines.step import Proposal, Step
from engines.tree import DraftTree, root_only


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


def affordable(chosen: int, gains: Sequence[float], table: Sequence[float], purse: Purse) -> int:
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


def record(costs: Costs, step: Step) -> None:
    """Learn the cost of a cycle, the drafters' own time aside."""
    if not step.prefill:
        seconds = step.timings.total - step.timings.draft
        costs.observe(len(step.tree), step.position, seconds)


def source_bits(tree: DraftTree) -> int:
    bits = 0
    for sources in tree.sources:
        bits |= sources
    return bits
