"""Exact mode: a width at which every decode of this file gives the same bits.

The kernels of a quantisation sum in an order that depends on how many rows a batch has, so logits
of one position differ in the last bits between a plain step and a draft's verification. Where every
decode has the same width they may still depend on the row's place in the batch. This module tries
widths until one is found at which they do not.

The trial crosses cell 256, where the KV cache's padded length changes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from datastores.errors import ModelError
from engines.llama.abilities import Shape
from engines.llama.governor import Governor
from engines.llama.pace import Pace
from engines.llama.target import LlamaTarget
from engines.llama.weights import Context
from engines.target import Floats
from engines.tree import chain

WIDTHS = (8, 16, 24, 32)
PADDING = 256
SEED = 20


def exact_shape(context: Context, shape: Shape, pace: Pace) -> Shape:
    """`shape` with the narrowest stable width.

    Raises:
        ModelError: at no width are the logits bitwise stable, or the memory cannot step back.
    """
    fixed = Governor(1, learning=False)
    if shape.max_rows >= WIDTHS[0]:
        for width in WIDTHS:
            padded = replace(shape, chains_only=True, padded_rows=width, max_rows=width)
            if _stable(LlamaTarget(context, padded, pace, fixed, ""), width):
                return padded
    raise ModelError(
        f"{context.weights.path} gives no bitwise stable logits here: run it without --exact"
    )


def _stable(target: LlamaTarget, width: int) -> bool:
    """Whether a chain's rows equal plain steps bit by bit, wherever in the batch they stand."""
    random = np.random.default_rng(SEED)
    start = PADDING - width - 1
    tokens = random.integers(0, target.vocabulary_size, start + width).tolist()
    list(target.prefill(tokens[:start]))
    plain = _walk(target, tokens[start:], 1)
    for step in (3, width):
        target.rewind(start)
        if not np.array_equal(plain, _walk(target, tokens[start:], step)):
            return False
    target.rewind(0)
    return True


def _walk(target: LlamaTarget, tokens: list[int], step: int) -> Floats:
    """Logits and hidden states after each of `tokens`, verified and committed `step` at a time."""
    seen: list[Floats] = []
    for begin in range(0, len(tokens), step):
        part = tokens[begin : begin + step]
        rows = target.verify(chain(part[0], part[1:], 0))
        seen.append(np.hstack([rows.logits, rows.hidden]))
        target.commit(range(len(part)))
    return np.vstack(seen)
