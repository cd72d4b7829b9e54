"""The texts that CREST is built from, joined position by position in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.crest.columns import Columns, SpilledColumn, open_columns

KINDS = 8
"""Number of kinds of text, whose meaning the caller defines."""
SLICE_POSITIONS = 1 << 20
"""Positions read at a time."""
MAX_REMAINING = 255
"""Distances to the end of a text are stored in one byte; larger ones do not matter."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """One text in one tokenizer's tokens.

    Attributes:
        identity: a digest of the content, of which the first eight bytes are compared; a text
            counts once even if it is given several times.
        tokens: token ids below 2^32.
        kind: kind of text, 0 to `KINDS` - 1.
    """

    identity: bytes
    tokens: Sequence[int] | NDArray[np.uint32]
    kind: int


@dataclass(frozen=True, slots=True)
class JoinedTexts:
    """The texts one after another.

    Attributes:
        tokens: uint32 [positions].
        remaining: uint8 [positions], tokens from here to the end of the text, at most
            `MAX_REMAINING`.
        kinds: uint8 [positions], the kind of text.
        columns: creates further columns.
    """

    tokens: SpilledColumn
    remaining: SpilledColumn
    kinds: SpilledColumn
    columns: Columns

    def __len__(self) -> int:
        return len(self.tokens)


@contextmanager
def joined(texts: Iterable[TokenText], folder: Path | None = None) -> Iterator[JoinedTexts]:
    """The concatenation of all texts.

    Args:
        folder: for temporary files; None for the system's.

    Raises:
        StoreError: there is no room for them.
    """
    with open_columns(folder) as columns:
        text = JoinedTexts(
            columns.new(np.uint32), columns.new(np.uint8), columns.new(np.uint8), columns
        )
        for batch in _batches(texts):
            ids = [np.asarray(one.tokens, np.uint32) for one in batch]
            text.tokens.append(np.concatenate(ids))
            text.remaining.append(np.concatenate([_remaining(len(one)) for one in ids]))
            kinds = np.array([one.kind for one in batch], np.uint8)
            text.kinds.append(np.repeat(kinds, [len(one) for one in ids]))
        yield text


def _batches(texts: Iterable[TokenText]) -> Iterator[list[TokenText]]:
    """Some texts at a time: writing each separately would take longer than counting it."""
    batch: list[TokenText] = []
    tokens = 0
    for text in texts:
        batch.append(text)
        tokens += len(text.tokens)
        if tokens >= SLICE_POSITIONS:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


def _remaining(tokens: int) -> NDArray[np.uint8]:
    """For each position of a text, the number of tokens from there to its end."""
    found = np.full(tokens, MAX_REMAINING, np.uint8)
    near = min(tokens, MAX_REMAINING)
    found[tokens - near :] = np.arange(near, 0, -1)
    return found
