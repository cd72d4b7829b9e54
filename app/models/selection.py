"""Choosing a model: the catalogue to choose from, and storing the choice in the settings.

`catalogue` reads the header of each file, up to a tenth of a second each, so it belongs in the
background. No model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.config import load_config, write_setting
from app.locations import Locations, ModelFolders
from app.models.description import FoundModel, describe
from app.models.discovery import (
    BUILT_IN,
    candidate_of,
    default_model,
    embedded_embedding_model,
    find_model,
    find_models,
    is_built_in,
    resolve_model,
)
from app.models.gguf_files import ModelCandidate
from app.models.memory import available_memory, freed_by_closing, memory_estimate, memory_shortage
from app.models.safetensors import is_model
from datastores.errors import InputError, ModelError

ABOUT_BUILT_IN = "The built-in model is tiny and only knows shell commands, and English."
NO_EMBEDDER = "off"
"""The setting with which imported texts are searched by words alone."""


def choose(choice: str, locations: Locations, folders: ModelFolders | None = None) -> FoundModel:
    """Store a model, given by name or path, as the one to open from now on.

    Raises:
        ModelError: there is no such model.
        InputError: it cannot be used, or the settings file is invalid.
        StoreError: the settings file cannot be written.
    """
    path = Path(choice).expanduser()
    if not is_built_in(choice) and is_model(path):
        candidate = candidate_of(path, find_models(locations, folders).candidates)
    else:
        candidate = find_model(choice, locations, folders, can_chat)
    model = describe(candidate)
    if model.problem:
        raise InputError(f"{model.name} cannot be used: {model.problem}")
    is_default = model.path == default_model(folders)
    write_setting(locations, "model", "" if is_default else model.name)
    return model


def can_chat(candidate: ModelCandidate) -> bool:
    """Whether a model can answer, by the headers of its files."""
    return not describe(candidate).problem


def choose_embedder(locations: Locations, setting: str) -> Path | None:
    """The file of the embedding model to use; None for none. Reads the headers of all models.

    Args:
        setting: a name, a file, `BUILT_IN`, `NO_EMBEDDER`, or empty for the smallest installed
            one, else the embedded one.

    Raises:
        ModelError: the model in the settings is missing, or is not an embedding model.
    """
    if setting == NO_EMBEDDER:
        return None
    if is_built_in(setting):
        return embedded_embedding_model()
    if not setting:
        found = map(describe, find_models(locations).candidates)
        usable = [model for model in found if model.embeds]
        smallest = min(usable, key=lambda model: (model.size, model.name), default=None)
        return smallest.path if smallest is not None else embedded_embedding_model()
    try:
        path = resolve_model(setting, locations, suits=lambda one: describe(one).embeds)
    except ModelError as error:
        raise ModelError(f"{error}; or change embedding in {locations.settings}") from error
    model = describe(candidate_of(path, ()))
    if not model.embeds:
        raise ModelError(
            f"{setting} cannot embed texts ({model.problem or 'it writes text'}): change embedding"
            f" in {locations.settings}"
        )
    return model.path


def first_launch_offer(
    locations: Locations, folders: ModelFolders | None = None, free: int | None = None
) -> list[FoundModel]:
    """Models to offer in place of the default one: all that fit into memory, largest first.

    Empty if a model was chosen before.

    Args:
        free: bytes of memory; None for the memory available now.

    Raises:
        InputError: the settings file is invalid.
    """
    config = load_config(locations.settings)
    if config.model:
        return []
    free = available_memory() if free is None else free
    found = [describe(candidate) for candidate in find_models(locations, folders).candidates]
    opened = default_model(folders)
    fitting = [
        model
        for model in found
        if not model.problem
        and model.name != BUILT_IN
        and model.path != opened
        and not memory_shortage(model.path, config.context, free, config.kv_type)
    ]
    return sorted(fitting, key=lambda model: (-model.parameters, model.name))


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model of the catalogue.

    Attributes:
        needed: memory in bytes; 0 if the model cannot be used anyway.
        in_use: whether it is loaded.
    """

    model: FoundModel
    needed: int = 0
    in_use: bool = False

    def fits(self, free: int) -> bool:
        """Whether it fits into `free` bytes of memory."""
        return self.in_use or self.needed <= free


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The models to choose from.

    Attributes:
        models: the one in use, then usable ones, then the rest, each sorted by name.
        room: bytes of memory for a model that replaces the one in use.
        whole: whether all models are listed.
    """

    models: tuple[ListedModel, ...]
    room: int
    whole: bool = True


def catalogue(locations: Locations, in_use: Path | None) -> Iterator[Catalogue]:
    """Describe all models; each yielded catalogue has one more, from the one in use to all.

    Args:
        in_use: the file of the loaded model, which is listed even if no folder contains it.

    Raises:
        InputError: the settings file is invalid.
    """
    config = load_config(locations.settings)
    context, kv_type = config.context, config.kv_type
    if in_use is not None and not is_model(in_use):
        in_use = None  # removed while it runs
    room = available_memory()
    if in_use is not None:
        room += freed_by_closing(in_use, context, kv_type)
    found = find_models(locations).candidates
    if in_use is not None:
        current = candidate_of(in_use, found)
        found, in_use = with_model(current, found), current.files[0]
        found.sort(key=lambda candidate: candidate != current)
    listed: list[ListedModel] = []
    for number, candidate in enumerate(found, start=1):
        listed.append(_listed(describe(candidate), in_use, context, kv_type))
        listed.sort(key=_rank)
        yield Catalogue(tuple(listed), room, number == len(found))


def with_model(model: ModelCandidate, found: Sequence[ModelCandidate]) -> list[ModelCandidate]:
    """`found` with `model`, without duplicates."""
    return list(found) if model in found else [*found, model]


def _listed(model: FoundModel, in_use: Path | None, context: int, kv_type: str) -> ListedModel:
    if model.problem:
        return ListedModel(model)
    try:
        need, length = memory_estimate(model.path, context, kv_type)
    except ModelError as error:  # removed meanwhile
        return ListedModel(replace(model, problem=str(error)))
    return ListedModel(model, need.total(length), model.path == in_use)


def _rank(listed: ListedModel) -> tuple[bool, bool, str]:
    return not listed.in_use, bool(listed.model.problem), listed.model.name.casefold()
