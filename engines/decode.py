"""The decode loop: the one place where tokens are generated.

    decode(target, drafters, budget, draw, …) -> Generator[Step]

It gets a draft from the budget, has the target verify it in one forward pass, walks the tree with
the sampler, commits the accepted rows, passes the `Step` to every observer and yields it. Plain
decoding is the empty draft; every drafter, temperature and engine goes through here.

Lossless: at each node of the walk the next token is drawn from the target's own distribution, once
for each emitted token. If a child carries that token the walk steps into it, else it stops. Drafts
decide only how many tokens a pass yields, never which.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from engines.budget.protocol import Budget
from engines.draft_tree import DraftTree, root_only
from engines.drafters.protocol import Drafter
from engines.sampler import Constrain, Draw, leaders
from engines.step import (
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    Context,
    Keep,
    Proposal,
    Step,
    StepObserver,
    Timings,
)
from engines.target import Floats, ForwardOutput, Target

MAX_LOGIT_GAP = 4.0
"""Tokens whose logits are this far below the most probable one's are not passed to drafters: they
have at most a fiftieth of its probability."""

_NO_LOGITS = np.empty((0, 0), np.float32)


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """The columns of a `Step` that are copied from a pass."""

    hidden: Floats
    top_tokens: list[list[int]]
    top_logits: Floats
    kept: tuple[int, ...]
    kept_logits: Floats


@dataclass(frozen=True, slots=True)
class StopCriteria:
    """When an answer ends: at one of the `stops` tokens, or after `limit` tokens.

    Attributes:
        ends: (tokens of the context, index of the answer's first) → why the answer ends with the
            last of them, or an empty string. A pure function, called for each token drawn.
    """

    stops: frozenset[int]
    limit: int
    ends: Callable[[Sequence[int], int], str] | None = None

    def reason(self, tokens: Sequence[int], start: int) -> str:
        """Why the answer, `tokens[start:]`, ends with its last token; empty if it continues."""
        if tokens[-1] in self.stops:
            return FINISH_STOP
        return self.ends(tokens, start) if self.ends is not None else ""


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """One walk through a verified tree: rows visited, tokens drawn, and their origins."""

    path: list[int]
    tokens: list[int]
    origins: list[int]


def decode(
    target: Target,
    drafters: Sequence[Drafter],
    budget: Budget,
    draw: Draw,
    stop: StopCriteria,
    *,
    temperature: float = 0.0,
    answered: int = 0,
    keep: Keep | None = None,
    observers: Sequence[StepObserver] = (),
    constrain: Constrain | None = None,
) -> Generator[Step]:
    """Generate from a prefilled `target` until an end, one step for each forward pass.

    The first step holds the token that came out of prefill. The generator may be closed at any
    yield: the KV cache then holds all emitted tokens but the last, and observers have seen every
    step. The last `answered` of the cached tokens already belong to the answer. `keep` chooses the
    positions whose logits are kept. `observers` see each step after the drafters and the budget.
    `constrain` restricts what is drawn; drafters draw without it.
    """
    tokens, hidden = list(target.tokens), target.last_row.hidden[0].copy()
    context = Context(tokens, hidden, temperature, draw, len(tokens) - answered)
    all_observers: list[StepObserver] = [*drafters, budget, *observers]
    if constrain is not None:
        draw = constrain(draw)
    step = _first_step(target, context, draw, stop, keep, budget.top_tokens_needed(drafters))
    for observer in all_observers:
        observer.begin(context)
    left = stop.limit - 1
    while True:
        observing = _notify(all_observers, step)
        yield step
        if step.finish:
            return
        started = perf_counter() - observing
        room = min(target.context_length - len(target.tokens), target.max_rows, left)
        tree, proposals = budget.draft(drafters, context, target, room)
        drafted = perf_counter()
        rows = target.verify(tree)
        verified = perf_counter()
        walk = walk_tree(tree, rows, draw, context, stop, left)
        position = step.position + len(step.tokens)
        outputs = _outputs(rows, walk, position, keep, budget.top_tokens_needed(drafters))
        context.hidden = outputs.hidden[-1]
        committing, reevaluation = _commit(target, walk.path, tree)
        left -= len(walk.tokens)
        inside = verified - drafted + committing
        timings = Timings(inside, drafted - started, perf_counter() - started, reevaluation)
        finish = _finish(context, target, stop, left)
        step = _step(position, walk, tree, proposals, outputs, timings, finish)


def _notify(observers: Sequence[StepObserver], step: Step) -> float:
    """Pass `step` to all observers; returns the seconds this took."""
    started = perf_counter()
    for observer in observers:
        observer.observe(step)
    return perf_counter() - started


def walk_tree(
    tree: DraftTree,
    rows: ForwardOutput,
    draw: Draw,
    context: Context,
    stop: StopCriteria,
    left: int,
) -> AcceptedPath:
    """Draw tokens along `tree` and append them to `context.tokens`.

    The walk ends where no child carries the token drawn, where `stop` has a reason, or after `left`
    tokens.
    """
    children = tree.children() if len(tree) > 1 else [{}]
    walk = AcceptedPath([], [], [])
    row = 0
    while True:
        offset = len(context.tokens) - context.answer_start
        token = draw(rows.logits[row], offset, context.tokens)
        child = children[row].get(token, 0)
        walk.path.append(row)
        walk.tokens.append(token)
        walk.origins.append(tree.origins[child])
        context.tokens.append(token)
        if (
            not child
            or len(walk.tokens) == left
            or stop.reason(context.tokens, context.answer_start)
        ):
            return walk
        row = child


def _commit(target: Target, path: Sequence[int], tree: DraftTree) -> tuple[float, float]:
    """Commit `path`; returns the seconds this took, and how many of them re-evaluated rows because
    the rejected ones of `tree` could not be dropped in place."""
    started = perf_counter()
    target.commit(path)
    seconds = perf_counter() - started
    reevaluated = len(tree) - len(path) > target.rollback_rows
    return seconds, seconds if reevaluated else 0.0


def _outputs(
    rows: ForwardOutput, walk: AcceptedPath, position: int, keep: Keep | None, last: int
) -> StepOutputs:
    """Copies of the hidden states along the path, and of the logits that are asked for.

    Only the last position has its up to `last` most probable tokens: drafters have seen the
    accepted positions, and scanning a vocabulary costs 0.1 ms a row.
    """
    path = walk.path
    kept, logits = keep(position, walk.origins) if keep is not None else ((), _NO_LOGITS)
    for row, index in enumerate(kept):
        logits[row] = rows.logits[path[index]]
    # A path along the first rows is a slice, which copies in less than half of the time.
    prefix = path[-1] == len(path) - 1
    hidden = rows.hidden[: len(path)].copy() if prefix else rows.hidden[path]
    if not last:
        return StepOutputs(hidden, [], _NO_LOGITS, tuple(kept), logits)
    leading, values = leaders(rows.logits[path[-1]], last, MAX_LOGIT_GAP)
    return StepOutputs(hidden, [leading.tolist()], values[None], tuple(kept), logits)


def _finish(context: Context, target: Target, stop: StopCriteria, left: int) -> str:
    """Why the answer ends with the last token of `context`; empty if it continues."""
    if reason := stop.reason(context.tokens, context.answer_start):
        return reason
    if left <= 0:
        return FINISH_LENGTH
    return FINISH_CONTEXT if len(target.tokens) >= target.context_length else ""


def _first_step(
    target: Target,
    context: Context,
    draw: Draw,
    stop: StopCriteria,
    keep: Keep | None,
    last: int,
) -> Step:
    """The step whose token came out of prefill: a walk through the empty draft after the prompt."""
    tree = root_only(context.tokens[-1])
    position = len(context.tokens)
    last_row = target.last_row
    walk = walk_tree(tree, last_row, draw, context, stop, 1)
    outputs = _outputs(last_row, walk, position, keep, last)
    finish = _finish(context, target, stop, stop.limit - 1)
    return _step(position, walk, tree, (), outputs, Timings(0.0, 0.0, 0.0), finish, prefill=True)


def _step(
    position: int,
    walk: AcceptedPath,
    tree: DraftTree,
    proposals: tuple[Proposal, ...],
    outputs: StepOutputs,
    timings: Timings,
    finish: str,
    *,
    prefill: bool = False,
) -> Step:
    return Step(
        position=position,
        tokens=tuple(walk.tokens),
        origins=tuple(walk.origins),
        tree=tree,
        path=tuple(walk.path),
        proposals=proposals,
        hidden=outputs.hidden,
        top_tokens=outputs.top_tokens,
        top_logits=outputs.top_logits,
        timings=timings,
        prefill=prefill,
        finish=finish,
        kept=outputs.kept,
        kept_logits=outputs.kept_logits,
    )
