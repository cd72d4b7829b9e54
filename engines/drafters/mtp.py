"""Prediction heads draft: MTP (DeepSeek-V3, section 2.2), EAGLE-3 and DFlash.

A head is one or a few blocks, trained with the target or for it to predict the tokens after the
next. It starts from the target's own states and costs a small part of a pass, so it drafts nearly
as well as a large draft model in the time of a small one, in any text and from the first answer on.
`engines.llama` runs the heads; drafting is in `engines.drafters.model_drafter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engines.draft_tree import MTP
from engines.drafters.model_drafter import DraftingModel, ModelDrafter


@runtime_checkable
class TargetWithHeads(Protocol):
    """A target that may have prediction heads."""

    @property
    def heads(self) -> DraftingModel | None:
        """Its heads, kept up to date with its cache; None if none are run."""

    @property
    def heads_problem(self) -> str:
        """Why its heads are not run; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of the loaded model; nothing is drafted after one of the `stops` tokens."""

    model: DraftingModel
    stops: frozenset[int]


class MtpDrafter(ModelDrafter):
    """Drafts with the target's own heads."""

    name = "mtp"
    origin = MTP
    subject = "the model's prediction heads"

    def __init__(self, heads: Heads) -> None:
        super().__init__(heads.model, heads.stops)
