"""The drafter protocol: one method that proposes, one that observes.

A drafter sees tokens and states, proposes a tree and never forks the loop: whatever it proposes,
the answer is the target's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engines.draft_tree import DraftTree
from engines.step import Step
from engines.target import Floats


@dataclass(slots=True)
class Context:
    """What has been said so far; one object per answer, grown in place by the loop.

    Attributes:
        tokens: every token of the context, the root last. Drafters read it and never keep a copy.
        hidden: float32 [width], the state that produced the root.
        temperature: of the sampler; a feature for calibration.
    """

    tokens: list[int]
    hidden: Floats
    temperature: float

    @property
    def root(self) -> int:
        """The token sampled last, not yet in the KV cache."""
        return self.tokens[-1]


class Drafter(Protocol):
    """Proposes continuations of a context."""

    @property
    def name(self) -> str:
        """As on the command line: prompt, recycle, crest, dense, student."""
        ...

    @property
    def learns_from(self) -> int:
        """How many of the likeliest tokens at each position it learns from; 0: from none."""
        ...

    def begin(self, context: Context) -> None:
        """A new answer starts on `context`, which may or may not share a prefix with the last."""
        ...

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A tree of at most `limit` rows beside the root, the most probable first.

        `probabilities` are the drafter's own estimates of P(token | its parent was emitted); the
        calibration corrects them. The root alone means: nothing to say. Must not block on disk or
        lock: a drafter that is not ready says nothing.
        """
        ...

    def observe(self, step: Step) -> None:
        """See what came. `context.tokens` already holds the step's tokens."""
        ...
