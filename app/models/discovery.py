"""Which models are on this machine, by name. Read-only, and cheap: no file is opened."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from app.locations import Locations, ModelFolders, model_folders
from app.models import known_folders
from app.models.gguf_files import GGUF_SUFFIX, ModelCandidate, SkippedModel
from datastores.errors import ModelError

MAX_SUGGESTIONS = 3
"""Names that are suggested in place of an unknown one."""
MIN_SIMILARITY = 0.4


@dataclass(frozen=True, slots=True)
class LocalModels:
    """What there is, by name only.

    Attributes:
        candidates: each with a name of its own and a file of its own.
        skipped: what could not be looked at.
    """

    candidates: list[ModelCandidate]
    skipped: list[SkippedModel]


def find_models(locations: Locations, others: ModelFolders | None = None) -> LocalModels:
    """Look through all places. A file found twice, by whatever links, counts once."""
    candidates: dict[str, ModelCandidate] = {}
    skipped: list[SkippedModel] = []
    files: set[tuple[int, int]] = set()
    for found in _everything(locations, others or model_folders()):
        if isinstance(found, SkippedModel):
            skipped.append(found)
            continue
        mark = _identity(found)
        if mark is None or mark not in files:
            name = _unique(found, candidates)
            candidates[name] = replace(found, name=name)
        if mark is not None:
            files.add(mark)
    return LocalModels(list(candidates.values()), skipped)


def resolve_model(choice: str, locations: Locations, others: ModelFolders | None = None) -> Path:
    """The file of a model by path or name; the embedded one where nothing was chosen.

    A file of that path wins over a name. What ends like a model's file is taken for a path, so that
    opening a mistyped one says what is wrong.

    Raises:
        ModelError: no model has that name.
    """
    if choice in ("", known_folders.EMBEDDED):
        return known_folders.embedded()
    path = Path(choice).expanduser()
    if os.path.isfile(path) or path.suffix.lower() == GGUF_SUFFIX:
        return path
    return find_model(choice, locations, others).files[0]


def find_model(
    name: str, locations: Locations, others: ModelFolders | None = None
) -> ModelCandidate:
    """The model of that name; without what follows the colon where that leaves no doubt.

    Raises:
        ModelError: there is none, or more than one.
    """
    known = find_models(locations, others).candidates
    wanted = name.casefold()
    for fits in (
        [candidate for candidate in known if candidate.name == name],
        [candidate for candidate in known if candidate.name.casefold() == wanted],
        [candidate for candidate in known if candidate.name.casefold().startswith(f"{wanted}:")],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            names = ", ".join(candidate.name for candidate in fits)
            raise ModelError(f"{name!r} may be any of {names}: give the whole name")
    raise ModelError(
        f"there is no model {name!r}, neither a file nor a name that `specchat models` lists"
        + _suggestion(name, [candidate.name for candidate in known])
    )


def _everything(
    locations: Locations, others: ModelFolders
) -> Iterator[ModelCandidate | SkippedModel]:
    """All places in the order in which they have a claim to a plain name."""
    yield from known_folders.own_models(locations.models)
    yield from known_folders.hugging_face_models(others.hugging_face)
    for folder in others.lm_studio:
        yield from known_folders.lm_studio_models(folder)
    for folder in others.ollama:
        yield from known_folders.ollama_models(folder)


def _identity(candidate: ModelCandidate) -> tuple[int, int] | None:
    """What the file is the same by, whatever leads to it; None where there is no file."""
    try:
        status = candidate.files[0].stat()
    except OSError:  # `describe` says so
        return None
    return status.st_dev, status.st_ino


def _unique(candidate: ModelCandidate, taken: Mapping[str, object]) -> str:
    """The candidate's name; with its place, and then a number, where the name is taken."""
    if candidate.name not in taken:
        return candidate.name
    name = f"{candidate.name}@{candidate.place.lower().replace(' ', '-')}"
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, MAX_SUGGESTIONS, MIN_SIMILARITY)
    within = [other for other in known if name.casefold() in other.casefold()]
    near = list(dict.fromkeys([*within, *close]))[:MAX_SUGGESTIONS]
    return f"; near it: {', '.join(near)}" if near else ""
