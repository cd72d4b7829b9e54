"""Which models are on this machine, and what their files say of themselves.

Read-only, and cheap: names come from folders, and of a file no more than its header is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from app.locations import Elsewhere, Locations, elsewhere
from app.models import hugging_face, lm_studio, ollama, own
from app.models.files import Candidate, Skipped
from app.models.naming import quantisation
from datastores.errors import ModelError
from engines.llama.metadata import Metadata, read_metadata

NEAR = 3
"""Names that are suggested in place of an unknown one."""
LIKENESS = 0.4

_KINDS = {
    "adapter": "an adapter, not a whole model",
    "imatrix": "an importance matrix, not a model",
    "mmproj": "an image projector, not a model",
    "vocab": "a vocabulary, not a model",
}


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        name: what a person types; unique.
        place: the program it belongs to.
        path: the file to open.
        size: of all its parts, in bytes.
        quantisation: such as `Q4_K_M`; empty where neither name nor header tells.
        architecture: such as `llama`; empty where the header could not be read.
        parameters: number of weights.
        context_length: tokens the model was trained for.
        problem: why it cannot be used; empty for a usable one.
    """

    name: str
    place: str
    path: Path
    size: int
    quantisation: str = ""
    architecture: str = ""
    parameters: int = 0
    context_length: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is, by name only.

    Attributes:
        candidates: each with a name of its own and a file of its own.
        skipped: what could not be looked at.
    """

    candidates: list[Candidate]
    skipped: list[Skipped]


def survey(locations: Locations, others: Elsewhere | None = None) -> Survey:
    """Look through all places. A file found twice, by whatever links, counts once."""
    candidates: dict[str, Candidate] = {}
    skipped: list[Skipped] = []
    files: set[tuple[int, int]] = set()
    for found in _everything(locations, others or elsewhere()):
        if isinstance(found, Skipped):
            skipped.append(found)
            continue
        mark = _identity(found)
        if mark is None or mark not in files:
            name = _unique(found, candidates)
            candidates[name] = replace(found, name=name)
        if mark is not None:
            files.add(mark)
    return Survey(list(candidates.values()), skipped)


def find_models(locations: Locations, others: Elsewhere | None = None) -> list[FoundModel]:
    """All models, the unusable ones included, each with its problem."""
    return [describe(candidate) for candidate in survey(locations, others).candidates]


def find(name: str, locations: Locations, others: Elsewhere | None = None) -> Candidate:
    """The model of that name; without what follows the colon where that leaves no doubt.

    Raises:
        ModelError: there is none, or more than one.
    """
    known = survey(locations, others).candidates
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


def describe(candidate: Candidate) -> FoundModel:
    """Look into a candidate's files."""
    named = quantisation(candidate.name.rpartition(":")[2])
    known = FoundModel(candidate.name, candidate.place, candidate.files[0], 0, named)
    if candidate.missing:
        parts = candidate.missing + len(candidate.files)
        return replace(known, problem=f"{candidate.missing} of its {parts} parts are missing")
    try:
        size = sum(file.stat().st_size for file in candidate.files)
        metadata = [read_metadata(file) for file in candidate.files]
    except OSError as error:
        return replace(known, problem=f"{error.filename}: {error.strerror}")
    except ModelError as error:
        return replace(known, problem=str(error))
    first, parameters = metadata[0], sum(part.parameters for part in metadata)
    return replace(
        known,
        size=size,
        quantisation=named or _stored_as(first),
        architecture=first.architecture,
        parameters=parameters,
        context_length=first.number("context_length"),
        problem=_problem(first, parameters),
    )


def _everything(locations: Locations, others: Elsewhere) -> Iterator[Candidate | Skipped]:
    """All places in the order in which they have a claim to a plain name."""
    yield from own.candidates(locations.models)
    yield from hugging_face.candidates(others.hugging_face)
    for folder in others.lm_studio:
        yield from lm_studio.candidates(folder)
    for folder in others.ollama:
        yield from ollama.candidates(folder)


def _identity(candidate: Candidate) -> tuple[int, int] | None:
    """What the file is the same by, whatever leads to it; None where there is no file."""
    try:
        status = candidate.files[0].stat()
    except OSError:  # `describe` says so
        return None
    return status.st_dev, status.st_ino


def _unique(candidate: Candidate, taken: Mapping[str, object]) -> str:
    """The candidate's name; with its place, and then a number, where the name is taken."""
    if candidate.name not in taken:
        return candidate.name
    name = f"{candidate.name}@{candidate.place.lower().replace(' ', '-')}"
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, NEAR, LIKENESS)
    within = [other for other in known if name.casefold() in other.casefold()]
    near = list(dict.fromkeys([*within, *close]))[:NEAR]
    return f"; near it: {', '.join(near)}" if near else ""


def _stored_as(metadata: Metadata) -> str:
    """The quantisation by the header: what it declares, else the type most weights have."""
    from gguf.constants import GGMLQuantizationType, LlamaFileType

    declared = metadata.values.get("general.file_type")
    for file_type in LlamaFileType:
        if file_type.value == declared:
            return file_type.name.partition("_")[2]
    commonest = max(metadata.weights, key=lambda kind: metadata.weights[kind], default=None)
    return next((kind.name for kind in GGMLQuantizationType if kind.value == commonest), "")


def _problem(metadata: Metadata, parameters: int) -> str:
    """Why a file with this header answers no questions; empty where it may."""
    architecture, kind = metadata.architecture, metadata.text("general.type")
    if kind in _KINDS or architecture == "clip":
        return _KINDS.get(kind, _KINDS["mmproj"])
    if not parameters:
        return _KINDS["vocab"]
    if metadata.number("pooling_type") or architecture.endswith("bert") or not _causal(metadata):
        return "it makes embeddings and writes no text"
    if metadata.text("tokenizer.ggml.model") in ("", "no_vocab", "none"):
        return "it holds no tokenizer"
    return ""


def _causal(metadata: Metadata) -> bool:
    return metadata.values.get(f"{metadata.architecture}.attention.causal", True) is not False
