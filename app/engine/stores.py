"""The stores one loaded model drafts from, opened for as long as it is loaded.

Owns where they lie and what is opened. Refuses to know how they are filled: the indexer fills
CREST, the dense drafter its own index.

The drafters of the command line: made by name, over the stores they draft from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from app.indexing.corpus_index import crest_path, discard_quarantined
from app.locations import Locations, make_folder
from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from datastores.errors import SpecchatError, StoreError
from engines.drafters.crest import CrestDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.target import Target, Vocabulary

if TYPE_CHECKING:
    from datastores.dense.worker import DenseWorker


@dataclass(slots=True)
class Stores:
    """What is open; None where nobody drafts from it.

    Attributes:
        crest: n-grams of texts and past chats, for the model's tokenizer.
        dense: the model's own past states.
        errors: which stores were damaged and are made anew, or cannot be used.
    """

    crest: CrestReader | None = None
    dense: DenseWorker | None = None
    errors: list[SpecchatError] = field(default_factory=list)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Note the error there is with one of them."""
        try:
            yield
        except StoreError as error:
            self.errors.append(error)

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
            if store.store.quarantined is not None:
                discard_quarantined(store.store)
                told = f"{path} was damaged and is made anew from texts and chats"
                stores.errors.append(StoreError(told))
        stores.crest = CrestReader(path)


def _open_dense(stores: Stores, locations: Locations, target: Target) -> None:
    """Open the index of the model's states; what it needs is loaded here and nowhere before."""
    from datastores.dense.store import DenseStore
    from datastores.dense.worker import DenseWorker

    folder = locations.states
    make_folder(folder)
    path = folder / f"{target.fingerprint}.db"
    store = DenseStore.open(path, target.fingerprint, target.width)
    if store.store.quarantined is not None:
        told = (
            f"{path} was damaged and is made anew while the model is idle; what was left of it is"
            f" {store.store.quarantined.name}, and may be deleted"
        )
        stores.errors.append(StoreError(told))
    stores.dense = DenseWorker(store, target.vocabulary_size)


@runtime_checkable
class Recording(Protocol):
    """A drafter that records what is said, filed under `source`; under None nothing is recorded."""

    source: str | None


@runtime_checkable
class HasError(Protocol):
    """A drafter whose store may fail while it is drafted from; `error` tells why, if it does."""

    error: SpecchatError | None


HEAVY = frozenset({"dense"})
"""Drafters that load large libraries: the one-shot path takes them only where they are named."""

Maker = Callable[[Stores, bool], list[Drafter]]


def make_drafters(
    names: Sequence[str], stores: Stores | None = None, *, remember: bool = True
) -> list[Drafter]:
    """Fresh drafters by name; one whose store is not open is left out.

    Unless they `remember`, what is said leaves no trace in any store.
    """
    stores = stores or Stores()
    return [drafter for name in names for drafter in MAKERS[name](stores, remember)]


def file_under(drafters: Iterable[Drafter], source: str | None) -> None:
    """Have what is said from now on recorded under `source`, by whoever records."""
    for drafter in drafters:
        if isinstance(drafter, Recording):
            drafter.source = source


def _crest(stores: Stores, _remember: bool) -> list[Drafter]:
    return [] if stores.crest is None else [CrestDrafter(stores.crest)]


def _dense(stores: Stores, remember: bool) -> list[Drafter]:
    if stores.dense is None:
        return []
    from engines.drafters.dense import DenseDrafter

    return [DenseDrafter(stores.dense.memory, stores.dense, records=remember)]


MAKERS: dict[str, Maker] = {
    "prompt": lambda _stores, _remember: [PromptLookup()],
    "recycle": lambda _stores, _remember: [TokenRecycling()],
    "crest": _crest,
    "dense": _dense,
}
"""How each drafter of the command line is made."""
