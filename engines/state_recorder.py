"""Records the states of answers for the dense index.

`StateRecorder` observes steps and hands tokens and the states that produced them to the index's
worker, which costs the decoding thread a list entry.
"""

from __future__ import annotations

from datastores.dense.worker import DenseWorker
from engines.step import Context, Step


class StateRecorder:
    """Passes the steps of answers to a dense index.

    Attributes:
        owner: what answers are recorded under from the next `begin` on; None: not recorded.
    """

    def __init__(self, worker: DenseWorker) -> None:
        self.owner: str | None = ""
        self._worker = worker

    def begin(self, context: Context) -> None:
        """Start to record an answer, or to ignore one."""
        if self.owner is None:
            self._worker.leave()
        else:
            self._worker.begin(self.owner, context.tokens[:-1])

    def observe(self, step: Step) -> None:
        """Record tokens and the states that produced them."""
        self._worker.observe(step.position, step.tokens, step.hidden)
