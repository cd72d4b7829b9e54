"""Records answers for the replay buffer, from which the draft model learns.

An observer of steps. It asks the loop for the logits of positions that the draft tree missed, and
of a sample of the others so that what the draft model knows is not unlearned; a copy of a row is
all it costs the decoding thread. Nothing is written before `keep`. Refuses to know which answers
may be kept, and what becomes of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.replay_buffer.writer import AnswerOrigin, AnswerRecording, ReplayWriter
from engines.step import Context, Step

SAMPLE_EVERY = 8
"""One in so many of the positions that were drafted right is kept."""
MAX_ROWS = 4096
"""Positions kept of one answer: 1.6 MB."""


class ReplayRecorder:
    """Gathers the answer that is being generated."""

    def __init__(self, writer: ReplayWriter) -> None:
        self._writer = writer
        self._recording: AnswerRecording | None = None

    def begin(self, context: Context) -> None:
        """Begin to record; what was recorded before and not kept is dropped.

        The first step, of which the loop asked what is `wanted`, is observed next.
        """
        self._recording = AnswerRecording(context.tokens[:-1])

    def wanted(self, position: int, sources: Sequence[int]) -> list[int]:
        """Which logits of a step are kept; an `engines.step.Keep`."""
        if self._recording is not None and self._recording.rows >= MAX_ROWS:
            return []
        return [
            index
            for index, drafted in enumerate(sources)
            if not drafted or (position + index) % SAMPLE_EVERY == 0
        ]

    def observe(self, step: Step) -> None:
        """Gather the step."""
        if self._recording is not None:
            self._recording.append(step.tokens, step.kept, step.kept_logits)
            self._writer.reduce_if_large(self._recording)

    def keep(self, origin: AnswerOrigin) -> None:
        """Have the answer written, if one was recorded."""
        recording, self._recording = self._recording, None
        if recording is not None:
            self._writer.keep(recording, origin)

    def drop(self) -> None:
        """Drop the answer."""
        self._recording = None
