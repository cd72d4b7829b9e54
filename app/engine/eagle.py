"""A model's EAGLE-3 drafter: the versions that learned from the user's answers, and loading one.

Its file, beside the model, stays as it is and drafts while there is no version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.engine.draft_model_versions import eagle_versions
from app.engine.draft_resources import DraftResources
from app.locations import Locations
from engines.distillation.versions import ORIGINAL, Versions
from engines.drafters.mtp import Heads, MtpDrafter
from engines.llama.gguf import EAGLE, heads_file, read_metadata
from engines.target import Target

if TYPE_CHECKING:
    from engines.llama.target import LlamaTarget


@dataclass(frozen=True, slots=True)
class VersionedEagle:
    """The versions of a loaded target's EAGLE-3 drafter.

    Attributes:
        original: its file.
        stops: tokens that end an answer.
    """

    drafter: ClassVar[str] = MtpDrafter.name
    original: Path
    loaded: LlamaTarget
    stops: frozenset[int]
    locations: Locations

    @property
    def target(self) -> str:
        """The target's fingerprint."""
        return self.loaded.fingerprint

    @property
    def versions(self) -> Versions:
        """Its versions."""
        return eagle_versions(self.locations, self.target)

    def open(self, resources: DraftResources) -> None:
        """Open the current version; if it is damaged, the original, and keep the error."""
        from engines.llama.heads_loading import open_version

        path, versions = self.original, self.versions
        resources.eagle_version = ORIGINAL
        with resources.collecting_errors():
            resources.eagle_version = versions.current_identity
            if version := versions.current_version():
                path = versions.file(version.number)
        with resources.collecting_errors():
            assert self.loaded.heads is not None, "there are heads since it was loaded"
            self.loaded.heads = open_version(self.loaded.heads, path)
            resources.heads = Heads(self.loaded.heads, self.stops)


def open_eagle(
    names: Sequence[str],
    resources: DraftResources,
    target: Target,
    path: Path,
    locations: Locations,
) -> VersionedEagle | None:
    """Open the EAGLE-3 drafter of `target`, loaded from `path`, if it runs and drafts.

    Errors are collected in `resources`.
    """
    if MtpDrafter.name not in names or resources.heads is None:
        return None
    file = eagle_file(path)
    if file is None:
        return None
    from engines.llama.target import LlamaTarget

    assert isinstance(target, LlamaTarget), "no other target has such heads"
    versioned = VersionedEagle(file, target, resources.heads.stops, locations)
    if versioned.versions.current:
        versioned.open(resources)
    return versioned


def eagle_file(model: Path) -> Path | None:
    """The EAGLE-3 drafter beside the file `model`; None if it has none, or other heads."""
    if not model.is_file():
        return None
    file = heads_file(model, read_metadata(model).architecture)
    return file if file is not None and read_metadata(file).architecture == EAGLE else None
