"""The step: everything that one forward pass of the target produced, and who may observe it.

The screen, the statistics, the drafters, the budget, the dense index's recorder and the replay
buffer see generation only through `Step`: `decode` passes each one to every `StepObserver`. A step
is immutable and owns its arrays, none of which is a view into the target's buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engines.draft_tree import DraftTree
from engines.sampler import Draw, greedy
from engines.target import Floats

FINISH_STOP = "stop"
FINISH_LENGTH = "length"
FINISH_CONTEXT = "context"
FINISH_REPETITION = "repetition"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One drafter's draft for a step, whether or not it was verified.

    Attributes:
        seconds: wall time of the proposal.
        after: tokens drafted by others between the step's root and this tree, whose root is the
            last of them; empty for a draft from the step's root.
    """

    drafter: str
    tree: DraftTree
    seconds: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time of one step of the loop, in seconds.

    Attributes:
        target: inside the target (verify and commit).
        draft: inside the drafters, the budget and the observers of the previous step.
        total: the whole step, from which V(n, L) is learned; `total - target` is our overhead.
        reevaluation: the part of `target` in a commit that re-evaluated accepted rows
            (`Target.rollback_rows`).
    """

    target: float
    draft: float
    total: float
    reevaluation: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass.

    Attributes:
        position: index, in the whole context, of the first of `tokens`.
        tokens: the k ≥ 1 tokens emitted; the last is the next root. The token that ends an answer
            is included.
        origins: for each emitted token, the bit set of origins whose *verified* draft carried it; 0
            where it is the target's own (the last token of every step).
        tree: what was verified; the root alone in plain decoding.
        path: rows of `tree` whose logits gave `tokens`, root first (k rows); they are in the KV
            cache after the step.
        proposals: those of all consulted drafters.
        hidden: float32 [k, width]; row i is the state that produced tokens[i].
        top_tokens: the most probable token ids at the last position (one row), if a drafter learns
            from them; else no rows.
        top_logits: their logits, float32 [rows, kept].
        prefill: true for the step whose token came out of prefill, without a pass of its own.
        finish: why the answer ended with this step; empty while it continues.
        kept: ascending indexes into `tokens` of those whose logits the loop was asked to keep.
        kept_logits: float32 [len(kept), vocabulary], in the observer's memory; row i gave
            tokens[kept[i]].
    """

    position: int
    tokens: tuple[int, ...]
    origins: tuple[int, ...]
    tree: DraftTree
    path: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    hidden: Floats
    top_tokens: list[list[int]]
    top_logits: Floats
    timings: Timings
    prefill: bool
    finish: str
    kept: tuple[int, ...] = ()
    kept_logits: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    @property
    def drafted(self) -> int:
        """Number of draft tokens verified."""
        return self.tree.drafted

    @property
    def accepted(self) -> int:
        """Number of draft tokens emitted, including a drafted stop token."""
        return sum(1 for origins in self.origins if origins)


Keep = Callable[[int, Sequence[int]], tuple[Sequence[int], Floats]]
"""Chooses the logits of a step to keep: (position of its first token, origins of its tokens) →
ascending indexes into its tokens, and memory for as many rows, float32 [rows, vocabulary].

Each row costs the decoding thread one copy, about as long as a greedy draw takes, if the memory was
used before; new memory takes five times as long."""


@dataclass(slots=True)
class Context:
    """The tokens so far; one object per answer, grown in place by the loop.

    Attributes:
        tokens: every token of the context, the root last. Only the loop may change it; nobody
            keeps a copy.
        hidden: float32 [width], the state that produced the root; [0] where the target has not
            computed it, since the root is only drafted (`engines.budget.continuation`).
        temperature: a feature for calibration.
        draw: the sampler. A draft model that draws with it agrees more often.
        answer_start: index in `tokens` of the answer's first token; the draw's noise is keyed by
            the offset from it.
        row_price: tokens that the loop emits in the time that one more row adds to a pass: a row
            with a lower probability is not worth verifying. Set by the budget; 0 if rows are free.
    """

    tokens: list[int]
    hidden: Floats
    temperature: float
    draw: Draw = greedy
    answer_start: int = 0
    row_price: float = 0.0

    @property
    def root(self) -> int:
        """The token sampled last, not yet in the KV cache."""
        return self.tokens[-1]


class StepObserver(Protocol):
    """Sees every step of an answer, including the first (prefill) and the last.

    It is called on the decoding thread before the step is yielded, so its time is part of the next
    step: an observer does no I/O and waits for no lock.
    """

    def begin(self, context: Context) -> None:
        """Start a new answer on `context`, which may share a prefix with the last one.

        `context.tokens` already holds the first token, which came out of prefill.
        """

    def observe(self, step: Step) -> None:
        """Take note of `step`, whose tokens `context.tokens` already holds."""
