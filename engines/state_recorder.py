"""Records the states of answers for the dense index.

An observer of steps: it hands tokens and the states that produced them to the index's worker, which
costs the decode thread a list entry. Refuses to know what becomes of them and which chats may be
recorded: whoever starts an answer sets `owner`.
"""

from __future__ import annotations

from datastores.dense.worker import DenseWorker
from engines.step import Context, Step


class StateRecorder:
    """Hands what is said to a dense index.

    Attributes:
        owner: what answers are filed under from the next `begin` on; None: they are not recorded.
    """

    def __init__(self, worker: DenseWorker) -> None:
        self.owner: str | None = ""
        self._worker = worker

    def begin(self, context: Context) -> None:
        """Begin to record an answer, or to record none."""
        if self.owner is None:
            self._worker.leave()
        else:
            self._worker.begin(self.owner, context.tokens[:-1])

    def observe(self, step: Step) -> None:
        """Record what was said and the states that said it."""
        self._worker.observe(step.position, step.tokens, step.hidden)
