"""Stores for a benchmark: real ones, in a folder that goes with them, never a person's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from app.engine import Engine
from app.locations import Locations
from app.projection import crest_path
from app.stores import Stores, open_stores
from datastores.crest import CrestStore
from datastores.crest_document import Document
from datastores.rest import RestStore, write_rest
from engines import sources
from engines.target import Target

if TYPE_CHECKING:
    from datastores.dense_keeper import DenseKeeper

BUDGET = 256 * 2**20
"""Bytes for CREST: more than a benchmark fills."""
KIND = sources.CHATS.bit_length() - 1


@dataclass(slots=True)
class BenchStores:
    """Open stores, and what CREST was given.

    Attributes:
        folder: where they lie.
        rest: REST's suffix array, once `fill` has made it.
    """

    folder: Path
    stores: Stores
    crest: CrestStore | None
    rest: RestStore | None = None
    documents: list[Document] = field(default_factory=list)

    def learn(self, tokens: Sequence[int]) -> None:
        """A chat of `tokens` becomes history. (Its states were recorded while it was answered.)"""
        if self.crest is None:
            return
        document = self._document(tokens)
        if not self.crest.update([document]):
            self.crest.rebuild(self.documents)

    def fill(self, target: Target, texts: Sequence[Sequence[int]]) -> Iterator[None]:
        """Fill every store with the same texts, reading their states with `target`.

        Yields now and then; done when exhausted. To be called once.
        """
        for tokens in texts:
            self._document(tokens)
        if self.crest is not None:
            self.crest.rebuild(self.documents)
        yield
        place = self.folder / "rest"
        place.mkdir()
        write_rest(place, self.documents)
        self.rest = RestStore(place)
        if self.stores.dense is not None:
            yield from _encode(target, self.stores.dense, texts)

    def _document(self, tokens: Sequence[int]) -> Document:
        """One more document, unlike any other even if its tokens are the same."""
        ids = np.array(tokens, dtype=np.uint32)
        number = len(self.documents).to_bytes(8, "little")
        document = Document(hashlib.sha256(number + ids.tobytes()).digest(), ids, KIND)
        self.documents.append(document)
        return document


@contextmanager
def bench_stores(engine: Engine, drafters: Sequence[str]) -> Iterator[BenchStores]:
    """Empty stores for `drafters`, until the end of the block.

    Raises:
        StoreError: one cannot be made; figures without its drafts would mislead.
    """
    with TemporaryDirectory(prefix="specchat-bench-") as folder, ExitStack() as opened:
        root = Path(folder)
        places = Locations(data=root, cache=root, config=root)
        stores = open_stores(drafters, places, engine.target, engine.vocabulary, BUDGET)
        opened.callback(stores.close)
        for trouble in stores.troubles:
            raise trouble
        crest = None
        if "crest" in drafters:
            path = crest_path(places, engine.vocabulary.fingerprint)
            crest = opened.enter_context(closing(CrestStore.open(path, BUDGET)))
        yield BenchStores(root, stores, crest)


def _encode(target: Target, keeper: DenseKeeper, texts: Sequence[Sequence[int]]) -> Iterator[None]:
    """States of all texts into the dense index, as an idle model reads imported ones."""
    from datastores.dense_book import DenseBook
    from engines.dense_encoding import encode_backlog

    for number, tokens in enumerate(texts):
        keeper.ask(partial(DenseBook.add_document, source=f"history:{number}", tokens=tokens))
    for _ in encode_backlog(target, keeper):
        yield
    # The first texts decided the projection; now that all are known there may be a better one.
    if keeper.ask(DenseBook.refit):
        for _ in encode_backlog(target, keeper):
            yield
