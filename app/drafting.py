"""The drafters of the command line: made by name, over the stores they draft from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from app.stores import Stores
from datastores.errors import SpecchatError
from engines.drafters.crest import Crest
from engines.drafters.prompt import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.recycle import TokenRecycling


@runtime_checkable
class Recording(Protocol):
    """A drafter that records what is said, filed under `source`; under None nothing is recorded."""

    source: str | None


@runtime_checkable
class Reading(Protocol):
    """A drafter whose store may fail while it is drafted from; `trouble` tells why, if it does."""

    trouble: SpecchatError | None


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
    return [] if stores.crest is None else [Crest(stores.crest)]


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
