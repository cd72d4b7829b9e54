"""The step: all that one forward pass of the target brought, for every observer alike.

The screen, the statistics, the CREST store, the dense index and the replay buffer see generation
only through this. A step is immutable and owns its arrays (nothing in it is a view into the
target).
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.draft_tree import DraftTree
from engines.target import Floats

FINISH_STOP = "stop"
FINISH_LENGTH = "length"
FINISH_CONTEXT = "context"


@dataclass(frozen=True, slots=True)
class Proposal:
    """One drafter's draft for a step, whether or not it was verified."""

    drafter: str
    tree: DraftTree
    seconds: float


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall time of one cycle of the loop, in seconds.

    `target` is inside the target's calls (verify and commit); `draft` inside the drafters and the
    budget; `total` the whole cycle, which is what V(n, L) is learnt from. `total - target` is our
    overhead.
    """

    target: float
    draft: float
    total: float


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass.

    Attributes:
        position: index, in the whole context, of the first token of `tokens`.
        tokens: the k ≥ 1 tokens emitted, in order; the last is the next root. The token that ends
            an answer is included.
        sources: for each emitted token, the bit set of sources whose *verified* draft carried it; 0
            where the target alone spoke (the last token of every step).
        tree: what was verified; the root alone in plain decoding.
        path: rows of `tree` whose logits gave `tokens`, root first (k rows); they stand in the KV
            cache after the step.
        proposals: what every consulted drafter proposed.
        hidden: float32 [k, width]; row i is the state that produced tokens[i].
        top_tokens: the likeliest token ids at each emitted position, best first, where the loop was
            asked to keep them; else the leading few at the last position alone (one row), where a
            drafter learns from them; else no rows. Rows belong to the last of `tokens`.
        top_logits: their logits, float32 [rows, kept].
        timings: see `Timings`.
        prefill: true for the step whose token came out of prefill: no target call of its own.
        finish: why the answer ended with this step; empty while it goes on.
    """

    position: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    tree: DraftTree
    path: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    hidden: Floats
    top_tokens: list[list[int]]
    top_logits: Floats
    timings: Timings
    prefill: bool
    finish: str

    @property
    def drafted(self) -> int:
        """Draft tokens verified."""
        return self.tree.drafted

    @property
    def accepted(self) -> int:
        """Draft tokens emitted, a stop token that was drafted included."""
        return sum(1 for sources in self.sources if sources)
