"""Records answers for the replay buffer, from which the draft model and the draft head learn.

`ReplayRecorder` observes steps. It asks the loop for the logits of positions that the draft tree
missed, and of a sample of the others so that the draft model does not unlearn them. The decoding
thread only copies rows; nothing is written before `keep`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastores.replay_buffer.writer import AnswerDetails, AnswerRecording, ReplayWriter
from engines.step import Context, Step
from engines.target import Floats

SAMPLE_EVERY = 8
"""One in this many of the correctly drafted positions is kept."""
MAX_ROWS = 4096
"""Most positions kept of one answer: 1.6 MB."""


_NOTHING: Floats = np.empty((0, 0), np.float32)


def is_kept(position: int, drafted: bool) -> bool:
    """Whether the logits of the token at `position` are kept, which a draft had or not."""
    return not drafted or position % SAMPLE_EVERY == 0


class ReplayRecorder:
    """Collects the answer that is being generated."""

    def __init__(self, writer: ReplayWriter) -> None:
        self._writer = writer
        self._recording: AnswerRecording | None = None
        self._asked: AnswerRecording | None = None

    def wanted(self, position: int, origins: Sequence[int]) -> tuple[Sequence[int], Floats]:
        """Choose the logits of a step to keep; an `engines.step.Keep`."""
        if self._recording is None:  # the first step is made before `begin`
            self._recording = self._writer.recording()
        self._asked = self._recording
        if self._recording.rows >= MAX_ROWS:
            return (), _NOTHING
        kept = [
            index
            for index, drafted in enumerate(origins)
            if is_kept(position + index, bool(drafted))
        ]
        memory = self._writer.memory(self._recording, len(kept))
        return ((), _NOTHING) if memory is None else (kept, memory)

    def begin(self, context: Context) -> None:
        """Start a recording; one that was not kept is dropped."""
        if self._recording is None or self._recording.has_begun:
            self.drop()
            self._recording = self._writer.recording()
        self._recording.begin(context.tokens[:-1])

    def observe(self, step: Step) -> None:
        """Add the step to the recording."""
        if self._recording is not None:
            kept = step.kept if self._asked is self._recording else ()
            self._recording.append(step.tokens, kept, step.hidden)

    def keep(self, details: AnswerDetails) -> None:
        """Write the answer, if one was recorded."""
        recording, self._recording = self._recording, None
        if recording is not None and recording.has_begun:
            self._writer.keep(recording, details)
        elif recording is not None:
            recording.release()

    def drop(self) -> None:
        """Drop the recording."""
        if self._recording is not None:
            self._recording.release()
            self._recording = None
