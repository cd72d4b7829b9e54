"""The past of a replay: earlier chats, as the drafters know them that can be replayed.

Owns a CREST of its own, in a folder that goes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from datastores.crest import CrestStore
from datastores.crest_document import Document
from datastores.crest_reader import CrestReader
from engines.drafters.crest import Crest
from engines.drafters.prompt import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.recycle import TokenRecycling
from engines.sources import CHATS

CREST_BYTES = 256 * 2**20
"""More than the chats of years fill."""


class Past:
    """The chats so far."""

    def __init__(self, store: CrestStore, reader: CrestReader) -> None:
        self._store = store
        self._reader = reader
        self._documents: list[Document] = []
        self._new: list[Document] = []

    def drafters(self) -> list[Drafter]:
        """Fresh drafters of every kind that can be replayed."""
        return [PromptLookup(), TokenRecycling(), Crest(self._reader)]

    def note(self, texts: Iterable[Sequence[int]]) -> None:
        """Token ids of messages that were said; drafted from after `update` or `settle`."""
        for text in texts:
            ids = np.array(text, dtype=np.uint32)
            number = len(self._documents) + len(self._new)
            identity = hashlib.sha256(number.to_bytes(8, "little")).digest()
            self._new.append(Document(identity, ids, CHATS.bit_length() - 1))

    def update(self) -> None:
        """Take in what was noted, which is little."""
        if not self._store.update(self._new):
            self.settle()
        self._documents += self._new
        self._new = []

    def settle(self) -> None:
        """Take in what was noted, however much it is."""
        self._documents += self._new
        self._new = []
        self._store.rebuild(self._documents)


@contextmanager
def empty_past() -> Iterator[Past]:
    """A past without chats, on the disk until the end of the block."""
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        path = Path(folder) / "crest.db"
        with closing(CrestStore.open(path, CREST_BYTES)) as store, closing(CrestReader(path)) as it:
            yield Past(store, it)
