"""The effect of rounding alone on plain answers: the same model reads its prompts in other chunks.

A quantised model rounds its activations to a few bits, so the last bit of a sum can change a later
word, and the order of summation depends on how many tokens a pass reads. Drafted answers cannot be
more alike than two plain ones whose prompts were read in passes of different widths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle, takewhile

from app.engine.engine import Engine
from engines.wrapped_target import WrappedTarget

CHUNKS = (13, 1, 50)
"""Rows of successive passes. Kernels differ between one row, several and 64 or more, and between
whole tiles of 4 rows and the rest. A prompt is otherwise read in passes of up to 512 tokens, of 16
on a slow machine, and of one for the last token."""


class RechunkedTarget(WrappedTarget):
    """A target that reads every prompt from its beginning, in `CHUNKS`."""

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        self.rewind(0)
        ends = takewhile(lambda end: end < len(tokens), accumulate(cycle(CHUNKS)))
        for end in (*ends, len(tokens)):
            yield from super().prefill(tokens[:end])


def rechunked(engine: Engine) -> Engine:
    """The same model, reading its prompts in `CHUNKS`."""
    return replace(engine, target=RechunkedTarget(engine.target))
