"""Records the states of answers for the dense index.

`StateRecorder` observes steps and hands tokens and the states that produced them to the index's
worker, which costs the decoding thread a list entry.
"""

from __future__ import annotations

from datastores.dense.worker import DenseWorker
from datastores.owners import each
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
        """Start to record an answer, or to ignore one.

        An answer that its chat shares with documents is drafted from, but not its prompt: their
        passages have states of their own.
        """
        prompt = context.tokens[:-1]
        if self.owner is None:
            self._worker.leave()
        else:
            self._worker.begin(self.owner, prompt, len(prompt) if len(each(self.owner)) > 1 else 1)

    def observe(self, step: Step) -> None:
        """Record tokens and the states that produced them."""
        self._worker.observe(step.position, step.tokens, step.hidden)
