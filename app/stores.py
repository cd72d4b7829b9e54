"""The stores one loaded model drafts from, opened for as long as it is loaded.

Owns where they lie and what is opened. Refuses to know how they are filled: the indexer fills
CREST, the dense drafter its own index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from app.locations import Locations, make_folder
from app.projection import crest_path, discard_damaged
from datastores.crest import CrestStore
from datastores.crest_reader import CrestReader
from datastores.errors import SpecchatError, StoreError
from engines.target import Target, Vocabulary

if TYPE_CHECKING:
    from datastores.dense_keeper import DenseKeeper


@dataclass(slots=True)
class Stores:
    """What is open; None where nobody drafts from it.

    Attributes:
        crest: n-grams of texts and past chats, for the model's tokenizer.
        dense: the model's own past states.
        troubles: which stores were damaged and are made anew, or cannot be used.
    """

    crest: CrestReader | None = None
    dense: DenseKeeper | None = None
    troubles: list[SpecchatError] = field(default_factory=list)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Note the trouble there is with one of them."""
        try:
            yield
        except StoreError as error:
            self.troubles.append(error)

    def close(self) -> None:
        """Let them go; what the dense index has not written yet is written."""
        if self.crest is not None:
            self.crest.close()
        if self.dense is not None:
            self.dense.close()


def open_stores(
    drafters: Sequence[str],
    locations: Locations,
    target: Target,
    vocabulary: Vocabulary,
    crest_bytes: int,
) -> Stores:
    """Open what `drafters` draft from, empty where nothing is there yet.

    What cannot be read or made is left out with a word: answers come without drafts from it.
    """
    stores = Stores()
    if "crest" in drafters:
        with stores.telling():
            _open_crest(stores, crest_path(locations, vocabulary.fingerprint), crest_bytes)
    if "dense" in drafters:
        with stores.telling():
            _open_dense(stores, locations, target)
    return stores


def _open_crest(stores: Stores, path: Path, crest_bytes: int) -> None:
    """Open the n-grams; whatever keeps them up to date makes them anew, too."""
    try:
        stores.crest = CrestReader(path)
    except StoreError:
        make_folder(path.parent)
        with closing(CrestStore.open(path, crest_bytes)) as store:
            if store.store.set_aside is not None:
                discard_damaged(store.store)
                told = f"{path} was damaged and is made anew from texts and chats"
                stores.troubles.append(StoreError(told))
        stores.crest = CrestReader(path)


def _open_dense(stores: Stores, locations: Locations, target: Target) -> None:
    """Open the index of the model's states; what it needs is loaded here and nowhere before."""
    from datastores.dense import DenseStore
    from datastores.dense_keeper import DenseKeeper

    folder = locations.states
    make_folder(folder)
    path = folder / f"{target.fingerprint}.db"
    store = DenseStore.open(path, target.fingerprint, target.width)
    if store.store.set_aside is not None:
        told = (
            f"{path} was damaged and is made anew while the model is idle; what was left of it is"
            f" {store.store.set_aside.name}, and may be deleted"
        )
        stores.troubles.append(StoreError(told))
    stores.dense = DenseKeeper(store, target.vocabulary_size)
