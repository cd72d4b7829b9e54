"""What CREST is built from: the token ids of one document and the kind of source they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KINDS = 8
"""Kinds are small numbers below this; what they mean is the caller's business."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document, projected onto one tokenizer.

    Attributes:
        identity: a digest of the content, told apart by its first eight bytes; a document counts
            once however often it is given.
        tokens: token ids below 2^32; what runs from one document into another is never seen.
        kind: kind of source, 0 to `KINDS` - 1.
    """

    identity: bytes
    tokens: Sequence[int] | NDArray[np.uint32]
    kind: int
