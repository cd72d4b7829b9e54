"""The draft model of a target: which file it is, and loading it.

The embedded model has its own; for others the user names one, or has one made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.config import load_config, write_setting
from app.engine.draft_model_versions import versions_of
from app.engine.draft_resources import DraftResources
from app.locations import Locations
from app.models.discovery import (
    BUILT_IN,
    embedded,
    embedded_draft_model,
    is_built_in,
    model_name,
    resolve_model,
)
from app.models.gguf_files import model_parts
from app.models.memory import require_memory
from datastores.errors import InputError, ModelError
from engines.distillation.versions import ORIGINAL, Versions
from engines.drafters.draft_model import DraftModel, DraftModelDrafter, require_same_vocabulary
from engines.fingerprint import fingerprint
from engines.target import Vocabulary

if TYPE_CHECKING:
    from engines.distillation.trainer import TrainingSettings

UNTRAINED = "new"
"""The setting for an untrained draft model made on this machine."""
UNTRAINED_SEED = 1
UNTRAINED_FILE = "new.gguf"
"""Its file, in the folder of its target."""
MAX_LIGHT_BYTES = 64 * 2**20
"""Largest file loaded for a single answer: loading a larger one takes longer than it saves."""


def draft_model_file(setting: str, model: Path, locations: Locations) -> Path | None:
    """The draft model's file for `model`; None for none.

    Args:
        setting: a name or a file; `built-in` is the embedded model's draft model, for models made
            from that one, and `new` the one that `make_draft_model` makes.

    Raises:
        ModelError: there is no model of that name, none was made, or `model` cannot be read.
    """
    if model == embedded() or is_built_in(setting):
        return embedded_draft_model()
    if setting == UNTRAINED:
        path = _untrained_file(model, locations)
        if not path.exists():
            raise ModelError(
                f"no draft model has been made for {model.name} yet:"
                " `specchat models use --draft-model new` makes one"
            )
        return path
    return resolve_model(setting, locations) if setting else None


def draft_model_name(path: Path, locations: Locations) -> str:
    """The displayed name of the draft model in the file `path`."""
    if path == embedded_draft_model():
        return BUILT_IN
    return "made here" if path.name == UNTRAINED_FILE else model_name(path, locations)


@dataclass(frozen=True, slots=True)
class VersionedDraftModel:
    """The draft model of a loaded target and its versions.

    Attributes:
        name: for display.
        original: its file, from which all versions are trained.
        target: the target's fingerprint.
    """

    drafter: ClassVar[str] = DraftModelDrafter.name
    name: str
    original: Path
    target: str
    vocabulary: Vocabulary
    context_length: int
    locations: Locations
    gpu_layers: int | None
    threads: int

    @property
    def versions(self) -> Versions:
        """Its versions.

        Raises:
            ModelError: the original cannot be read.
        """
        return versions_of(self.locations, self.target, self.original)

    def open(self, resources: DraftResources) -> None:
        """Open the current version; if it is damaged, the original, and keep the error."""
        path, resources.draft_model_version = self.original, ORIGINAL
        with resources.collecting_errors():
            if (self.locations.draft_models / self.target).exists():  # else there is none to read
                resources.draft_model_version = self.versions.current_identity
                version = self.versions.current_version()
                path = self.versions.file(version.number) if version else path
        with resources.collecting_errors():
            # A version was loaded before it was published.
            trusted = path != self.original or path == embedded_draft_model()
            resources.draft_model = open_draft_model(
                path,
                self.vocabulary,
                self.context_length,
                gpu_layers=self.gpu_layers,
                threads=self.threads,
                probe_cache=None if trusted else self.locations.probes,
            )


def open_draft_model(
    path: Path,
    vocabulary: Vocabulary,
    context_length: int,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    probe_cache: Path | None = None,
) -> DraftModel:
    """Load the draft model at `path` for a target with `vocabulary`.

    Raises:
        InputError: its vocabulary is another one; the first token that differs is named.
        ModelError: missing, damaged, too large for the memory, or its cache cannot be rewound.
    """
    from engines.llama.model import load

    require_memory(path, context_length, gpu_layers, heads=False)
    model = load(
        path,
        gpu_layers=gpu_layers,
        threads=threads,
        context_length=context_length,
        probe_cache=probe_cache,
    )
    if model.target.chains_only or model.target.max_rows == 1:
        raise ModelError(f"{path} cannot draft: its cache cannot be rewound")
    require_drafts_for(path, model.vocabulary, vocabulary)
    return DraftModel(model.target, vocabulary.stops)


def make_draft_model(model: Path, locations: Locations) -> Path:
    """The draft model of setting `new` for `model`, made if there is none yet.

    Raises:
        InputError: the embedded model has its own draft model, or any useful one would cost too
            much compared with `model`.
        ModelError: `model` cannot be read.
        StoreError: the file cannot be written.
    """
    from engines.distillation.untrained import write_untrained

    if model == embedded():
        raise InputError("the built-in model has its own draft model")
    path = _untrained_file(model, locations)
    if not path.exists():
        write_untrained(path, UNTRAINED_SEED, *model_parts(model))
    return path


def _untrained_file(model: Path, locations: Locations) -> Path:
    return locations.draft_models / fingerprint(model) / UNTRAINED_FILE


def training_settings(draft_model: Path) -> TrainingSettings:
    """Training settings of the draft model in the file `draft_model`; one made here has its own.

    Raises:
        ModelError: it was made here and cannot be read.
    """
    from engines.distillation import trainer, untrained

    if draft_model.name == UNTRAINED_FILE:
        return untrained.training_settings(draft_model)
    return trainer.TrainingSettings()


def choose_draft_model(choice: str, locations: Locations) -> None:
    """Set the draft model of the chosen model, by name or file; empty for none, `new` makes one.

    Raises:
        ModelError: there is no such model, or it or the chosen one cannot be read.
        InputError: the vocabularies differ, as for `make_draft_model`, or the settings file is
            invalid.
        StoreError: the settings file, or a new draft model, cannot be written.
    """
    from app.indexing.vocabularies import open_vocabulary

    model = resolve_model(load_config(locations.settings).model, locations)
    if choice == UNTRAINED:
        path: Path | None = make_draft_model(model, locations)
    else:
        path = draft_model_file(choice, Path(), locations)
    if path is not None:
        require_drafts_for(path, open_vocabulary(path), open_vocabulary(model))
    if is_built_in(choice):
        choice = BUILT_IN
    elif path is not None and choice != UNTRAINED:
        choice = model_name(path, locations)
    write_setting(locations, "draft_model", choice)


def require_drafts_for(path: Path, draft_model: Vocabulary, target: Vocabulary) -> None:
    """Check that the model at `path` with vocabulary `draft_model` can draft for `target`.

    Raises:
        InputError: the vocabularies differ.
    """
    try:
        require_same_vocabulary(draft_model, target)
    except InputError as error:
        raise InputError(
            f"{path.name} cannot draft for this model: {error}. A draft model is a smaller one of"
            " the same family: choose one with `specchat models use --draft-model NAME`, have"
            " one made with `--draft-model new`, or choose none with an empty NAME"
        ) from error
