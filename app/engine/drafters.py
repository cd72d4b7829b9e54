"""How each drafter is made over the stores of a loaded model.

Owns the drafters' names and which of them need large libraries. Refuses to know how stores are
opened (`app.engine.stores`) and when a drafter is asked (`engines.budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.engine.stores import Stores
from engines.drafters.crest import CrestDrafter
from engines.drafters.mtp import MtpDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling

HEAVY = frozenset({"dense"})
"""Drafters that import large libraries: a one-shot command uses them only if they are named."""

Maker = Callable[[Stores], list[Drafter]]


def make_drafters(names: Sequence[str], stores: Stores | None = None) -> list[Drafter]:
    """Fresh drafters by name; one whose store is not open is left out."""
    stores = stores or Stores()
    return [drafter for name in names for drafter in MAKERS[name](stores)]


def _crest(stores: Stores) -> list[Drafter]:
    return [] if stores.crest is None else [CrestDrafter(stores.crest)]


def _dense(stores: Stores) -> list[Drafter]:
    if stores.dense is None:
        return []
    from engines.drafters.dense import DenseDrafter

    return [DenseDrafter(stores.dense.memory)]


def _draft_model(stores: Stores) -> list[Drafter]:
    if stores.draft_model is None:
        return []
    from engines.drafters.draft_model import DraftModelDrafter

    return [DraftModelDrafter(stores.draft_model)]


def _head(stores: Stores) -> list[Drafter]:
    if stores.head is None:
        return []
    from engines.drafters.head import HeadDrafter

    return [HeadDrafter(stores.head, stores.stops)]


MAKERS: dict[str, Maker] = {
    "prompt": lambda _stores: [PromptLookup()],
    "recycle": lambda _stores: [TokenRecycling()],
    "crest": _crest,
    "dense": _dense,
    "draft-model": _draft_model,
    "mtp": lambda stores: [MtpDrafter(stores.heads)] if stores.heads is not None else [],
    "head": _head,
}
"""How each drafter of the command line is made."""
