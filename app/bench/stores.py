"""Stores for a benchmark: real ones, in a folder that goes with it, never a person's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from app.engine import Engine
from app.locations import Locations
from app.projection import crest_path
from app.stores import Stores, open_stores
from datastores.crest import CrestStore
from datastores.crest_document import Document
from engines import sources

BUDGET = 256 * 2**20
"""Bytes for CREST: more than a benchmark fills."""
KIND = sources.CHATS.bit_length() - 1


@dataclass(slots=True)
class BenchStores:
    """Open stores, and what CREST was given."""

    stores: Stores
    crest: CrestStore | None
    documents: list[Document] = field(default_factory=list)

    def learn(self, tokens: Sequence[int]) -> None:
        """A chat of `tokens` becomes history. (Its states were recorded while it was answered.)"""
        if self.crest is None:
            return
        ids = np.array(tokens, dtype=np.uint32)
        number = len(self.documents).to_bytes(8, "little")
        document = Document(hashlib.sha256(number + ids.tobytes()).digest(), ids, KIND)
        self.documents.append(document)
        if not self.crest.update([document]):
            self.crest.rebuild(self.documents)


@contextmanager
def bench_stores(engine: Engine, drafters: Sequence[str]) -> Iterator[BenchStores]:
    """Empty stores for `drafters`, until the end of the block."""
    with TemporaryDirectory(prefix="specchat-bench-") as folder, ExitStack() as opened:
        root = Path(folder)
        places = Locations(data=root, cache=root, config=root)
        stores = open_stores(drafters, places, engine.target, engine.vocabulary, BUDGET)
        opened.callback(stores.close)
        crest = None
        if "crest" in drafters:
            path = crest_path(places, engine.vocabulary.fingerprint)
            crest = opened.enter_context(closing(CrestStore.open(path, BUDGET)))
        yield BenchStores(stores, crest)
