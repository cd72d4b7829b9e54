"""Records answers for the replay buffer, from which the draft model and the draft head learn.

An observer of steps. It asks the loop for the logits of positions that the draft tree missed, and
of a sample of the others so that what the draft model knows is not unlearned; a copy of a row is
all it costs the decoding thread. Nothing is written before `keep`. Refuses to know which answers
may be kept, and what becomes of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastores.replay_buffer.writer import AnswerDetails, AnswerRecording, ReplayWriter
from engines.step import Context, Step
from engines.target import Floats

SAMPLE_EVERY = 8
"""One in so many of the positions that were drafted right is kept."""
MAX_ROWS = 4096
"""Positions kept of one answer: 1.6 MB."""


_NOTHING: Floats = np.empty((0, 0), np.float32)


class ReplayRecorder:
    """Gathers the answer that is being generated."""

    def __init__(self, writer: ReplayWriter) -> None:
        self._writer = writer
        self._recording: AnswerRecording | None = None
        self._asked: AnswerRecording | None = None

    def wanted(self, position: int, origins: Sequence[int]) -> tuple[Sequence[int], Floats]:
        """Which logits of a step are kept; an `engines.step.Keep`."""
        if self._recording is None:  # the first step is made before `begin`
            self._recording = self._writer.recording()
        self._asked = self._recording
        if self._recording.rows >= MAX_ROWS:
            return (), _NOTHING
        kept = [
            index
            for index, drafted in enumerate(origins)
            if not drafted or (position + index) % SAMPLE_EVERY == 0
        ]
        memory = self._writer.memory(self._recording, len(kept))
        return ((), _NOTHING) if memory is None else (kept, memory)

    def begin(self, context: Context) -> None:
        """Begin to record; what was recorded before and not kept is dropped."""
        if self._recording is None or self._recording.has_begun:
            self.drop()
            self._recording = self._writer.recording()
        self._recording.begin(context.tokens[:-1])

    def observe(self, step: Step) -> None:
        """Gather the step."""
        if self._recording is not None:
            kept = step.kept if self._asked is self._recording else ()
            self._recording.append(step.tokens, kept, step.hidden)

    def keep(self, details: AnswerDetails) -> None:
        """Have the answer written, if one was recorded."""
        recording, self._recording = self._recording, None
        if recording is not None and recording.has_begun:
            self._writer.keep(recording, details)
        elif recording is not None:
            recording.release()

    def drop(self) -> None:
        """Drop the answer."""
        if self._recording is not None:
            self._recording.release()
            self._recording = None
