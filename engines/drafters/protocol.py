"""The drafter protocol: an observer of steps that also proposes.

A drafter sees tokens and states and proposes a tree; it never affects the answer, which is the
target's own.
"""

from __future__ import annotations

from typing import Protocol

from engines.draft_tree import DraftTree
from engines.step import Context, StepObserver


class Drafter(StepObserver, Protocol):
    """Proposes continuations of a context."""

    @property
    def name(self) -> str:
        """As on the command line: prompt, recycle, suffix, crest, dense, draft-model, mtp,
        head."""

    @property
    def top_tokens_needed(self) -> int:
        """How many of the most probable tokens at each position it learns from; 0 if none."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A tree of at most `limit` rows besides the root, the most probable first.

        `probabilities` are the drafter's own estimates of P(token | its parent was emitted); the
        calibration corrects them. The root alone is an empty proposal. Must not block on disk or on
        a lock: a drafter that is not ready proposes nothing.

        `context` may be a copy of the answer's with drafted tokens appended
        (`engines.budget.continuation`), which are to be continued, not learned.
        """
