"""What rounding alone does to plain answers: the same model reads its prompts in other chunks.

A quantised model rounds its activations to a few bits, so the last bit of a sum can change a word
further on, and the order of sums depends on how many tokens a pass reads. Drafted answers cannot be
more alike than two plain ones that were read in passes of different widths.

Owns the widths of those passes. Refuses to know how answers are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle, takewhile

from app.engine.engine import Engine
from engines.wrapped_target import WrappedTarget

CHUNKS = (13, 80)
"""Tokens of a prompt to read at once, in turn. Kernels differ between one row and several, between
whole tiles of 4 and the rest, and from 64 rows on, so both narrow and wide passes are needed:
otherwise up to 512 tokens are read in one pass and the last one alone."""


class RechunkedTarget(WrappedTarget):
    """A target that reads every prompt from its beginning, in `CHUNKS`."""

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        self.rewind(0)
        ends = takewhile(lambda end: end < len(tokens), accumulate(cycle(CHUNKS)))
        for end in (*ends, len(tokens)):
            yield from super().prefill(tokens[:end])


def rechunked(engine: Engine) -> Engine:
    """The same model, which reads its prompts in other chunks."""
    return replace(engine, target=RechunkedTarget(engine.target))
