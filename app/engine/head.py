"""A model's draft head: its versions, and loading the current one.

There is none before the first version, which is trained on this machine from the model's answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.engine.draft_model_versions import head_versions
from app.engine.draft_resources import DraftResources
from app.locations import Locations
from engines.distillation.versions import ORIGINAL, Versions
from engines.drafters.head import HeadDrafter, read_head
from engines.target import Target


@dataclass(frozen=True, slots=True)
class VersionedHead:
    """The versions of a loaded target's draft head.

    Attributes:
        target: the target's fingerprint.
        width: width of its hidden states.
        size: size of its vocabulary.
    """

    drafter: ClassVar[str] = HeadDrafter.name
    target: str
    width: int
    size: int
    locations: Locations

    @property
    def versions(self) -> Versions:
        """Its versions."""
        return head_versions(self.locations, self.target)

    def open(self, resources: DraftResources) -> None:
        """Open the current version; if it is damaged, none, and keep the error."""
        resources.head, resources.head_version, versions = None, ORIGINAL, self.versions
        with resources.collecting_errors():
            resources.head_version = versions.current_identity
            if version := versions.current_version():
                path = versions.file(version.number)
                resources.head = read_head(path, self.target, self.width, self.size)


def open_head(
    names: Sequence[str],
    resources: DraftResources,
    target: Target,
    locations: Locations,
) -> VersionedHead | None:
    """Open the draft head of `target`, if it is one of the drafters `names`.

    Models whose hidden states cannot be read have none. Errors are collected in `resources`.
    """
    if HeadDrafter.name not in names or not target.width:
        return None
    versioned = VersionedHead(target.fingerprint, target.width, target.vocabulary_size, locations)
    versioned.open(resources)
    return versioned
