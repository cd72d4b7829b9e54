"""How each drafter is made over the resources of a loaded model, which
`app.engine.draft_resources` opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.engine.draft_resources import DraftResources
from engines.drafters.crest import CrestDrafter
from engines.drafters.mtp import MtpDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.suffix import SuffixDrafter
from engines.drafters.token_recycling import TokenRecycling

HEAVY = frozenset({"dense"})
"""Drafters that import large libraries; `specchat ask` uses them only if they are named."""

Maker = Callable[[DraftResources], list[Drafter]]


def make_drafters(names: Sequence[str], resources: DraftResources | None = None) -> list[Drafter]:
    """Fresh drafters by name, without those whose store is not open."""
    resources = resources or DraftResources()
    return [drafter for name in names for drafter in MAKERS[name](resources)]


def _crest(resources: DraftResources) -> list[Drafter]:
    return [] if resources.crest is None else [CrestDrafter(resources.crest)]


def _suffix(resources: DraftResources) -> list[Drafter]:
    return [] if resources.suffixes is None else [SuffixDrafter(resources.suffixes)]


def _dense(resources: DraftResources) -> list[Drafter]:
    if resources.dense is None:
        return []
    from engines.drafters.dense import DenseDrafter

    return [DenseDrafter(resources.dense.memory)]


def _draft_model(resources: DraftResources) -> list[Drafter]:
    if resources.draft_model is None:
        return []
    from engines.drafters.draft_model import DraftModelDrafter

    return [DraftModelDrafter(resources.draft_model)]


def _head(resources: DraftResources) -> list[Drafter]:
    if resources.head is None:
        return []
    from engines.drafters.head import HeadDrafter

    return [HeadDrafter(resources.head, resources.stops)]


MAKERS: dict[str, Maker] = {
    "prompt": lambda _resources: [PromptLookup()],
    "recycle": lambda _resources: [TokenRecycling()],
    "suffix": _suffix,
    "crest": _crest,
    "dense": _dense,
    "draft-model": _draft_model,
    "mtp": lambda resources: [MtpDrafter(resources.heads)] if resources.heads is not None else [],
    "head": _head,
}
"""By the names of the command line."""
