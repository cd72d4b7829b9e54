"""REST's datastore, the baseline CREST is measured against: all tokens and their suffix array.

A folder of two memory-mapped arrays, as REST keeps them (crest.txt, section 3.1). Unlike REST's
published code it keeps ids whole and lets no match run from one document into the next: a separator
stands between them. Serves benchmarks only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.crest_document import Document
from datastores.errors import InputError

SEPARATOR = 0
"""Ends every document; stored ids are token ids plus one."""

Ids = NDArray[np.uint32]


class RestStore:
    """Tokens and suffix array of one set of documents."""

    def __init__(self, folder: Path) -> None:
        """Open what `write_rest` made in `folder`."""
        width = 2 if (folder / "tokens.u16").exists() else 4
        tokens = folder / f"tokens.u{8 * width}"
        self._files = (tokens, folder / "suffixes.i32")
        if not tokens.stat().st_size:
            self._tokens = np.empty(0, dtype=f"<u{width}")
            self._suffixes = np.empty(0, dtype="<i4")
        else:
            self._tokens = np.memmap(tokens, dtype=f"<u{width}", mode="r")
            self._suffixes = np.memmap(self._files[1], dtype="<i4", mode="r")

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self._files)

    def __len__(self) -> int:
        """Positions, separators included."""
        return len(self._suffixes)

    def find(self, context: Sequence[int], within: tuple[int, int]) -> tuple[int, int]:
        """The range of the suffix array, within another, whose suffixes begin with `context`."""
        wanted = [token + 1 for token in context]
        first = self._bisect(wanted, *within, after=False)
        return first, self._bisect(wanted, first, within[1], after=True)

    def continuations(self, found: tuple[int, int], skip: int, length: int, most: int) -> Ids:
        """What follows at most `most` of the suffixes in `found`, `skip` tokens in.

        Returns uint32 [matches, length] in ascending order, token ids plus one; from the end of a
        document on, `SEPARATOR`. Of more matches, `most` are taken at even distances.
        """
        first, last = found
        rows = np.unique(np.linspace(first, last - 1, min(most, last - first)).astype(np.int64))
        places = self._suffixes[rows].astype(np.int64)[:, None] + (skip + np.arange(length))
        inside = places < len(self._tokens)
        ids = np.where(inside, self._tokens[np.where(inside, places, 0)], SEPARATOR)
        ended = np.logical_or.accumulate(ids == SEPARATOR, axis=1)
        return np.where(ended, SEPARATOR, ids).astype(np.uint32)

    def _bisect(self, wanted: list[int], low: int, high: int, *, after: bool) -> int:
        """First suffix in [low, high) that begins with more than `wanted`, or not less than it."""
        tokens, suffixes, length = self._tokens, self._suffixes, len(wanted)
        while low < high:
            middle = (low + high) // 2
            place = int(suffixes[middle])
            begins = tokens[place : place + length].tolist()
            if begins < wanted or (after and begins == wanted):
                low = middle + 1
            else:
                high = middle
        return low


def write_rest(folder: Path, documents: Iterable[Document], width: int = 4) -> None:
    """Make a store in `folder`, which must exist and be empty, with 4 or 2 bytes for each id.

    Raises:
        InputError: an id does not fit into `width` bytes.
    """
    from pydivsufsort import divsufsort

    parts: list[NDArray[np.uint64]] = [np.empty(0, dtype=np.uint64)]
    for document in documents:
        parts += [np.asarray(document.tokens, dtype=np.uint64) + np.uint64(1), np.zeros(1, "<u8")]
    tokens = np.concatenate(parts)
    if len(tokens) and int(tokens.max()) >= 1 << 8 * width:
        raise InputError(f"token id {int(tokens.max()) - 1} does not fit into {width} bytes")
    stored = tokens.astype(f"<u{width}")
    suffixes = divsufsort(stored) if len(stored) else np.empty(0, dtype=np.int32)
    stored.tofile(folder / f"tokens.u{8 * width}")
    suffixes.astype("<i4").tofile(folder / "suffixes.i32")
