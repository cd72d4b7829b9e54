"""Finds the models on this machine by name: specchat's own, and those of other programs.

No model file is opened. Another program's layout is a function here and a line in
`_all_candidates`:

- Hugging Face has `models--ORG--REPO/snapshots/COMMIT/FILE`, links to blobs named by their
  checksums. Files are opened by the link, since the parts of a model find each other by name.
- LM Studio has `PUBLISHER/REPO/FILE.gguf`, named like the repositories.
- Ollama has a JSON manifest at `manifests/HOST/NAMESPACE/MODEL/TAG`; one of its layers is the
  model, at `blobs/sha256-DIGEST`. A safetensors model has no such layer and is skipped there.

The file of any other safetensors model's candidate is its folder.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, count
from pathlib import Path

from app.locations import Locations, ModelFolders, model_folders
from app.models.gguf_files import (
    GGUF_SUFFIX,
    GIVEN_BY_PATH,
    ModelCandidate,
    SkippedModel,
    candidates_of,
    gguf_files,
    list_folder,
    model_parts,
    models_in_folder,
    quantisation,
)
from app.models.safetensors import CONFIG_FILE, has_weights, is_model
from datastores.errors import ModelError

SPECCHAT, HUGGING_FACE, LM_STUDIO, OLLAMA = "specchat", "Hugging Face", "LM Studio", "Ollama"
"""The programs that models belong to."""
PYTHON_PACKAGE = "Python package"
"""The place of a model that was installed with pip."""

BUILT_IN = "built-in"
"""The name of the embedded model."""
_BUILT_IN_NAMES = frozenset((BUILT_IN, "embedded"))
"""Its present name, and the one in settings, scripts and histories of earlier versions."""

EMBEDDED_FILE = "target-f16.gguf"
EMBEDDED_DRAFT_MODEL_FILE = "draft-model-f16.gguf"
EMBEDDED_QUESTION_MODEL_FILE = "question-model-f16.gguf"
EMBEDDED_EMBEDDING_MODEL_FILE = "embedding-model-q8.gguf"
EMBEDDED_TEMPERATURE = 0.0
"""Default temperature of the built-in model: a specialist's likeliest answer is its best."""

MAX_SUGGESTIONS = 3
"""Most names suggested in place of an unknown one."""
MIN_SIMILARITY = 0.4
"""Minimum of difflib's ratio for a suggested name."""

HUB_PREFIX = "models--"
COMMIT_CHARACTERS = 40

MODEL_LAYER = "application/vnd.ollama.image.model"
MAX_MANIFEST_BYTES = 1 << 20
MANIFEST_DEPTH = 4
"""Host, namespace, model, tag."""
OLLAMA_DEFAULTS = ("registry.ollama.ai", "library")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class LocalModels:
    """The models on this machine, each with a unique name, and what could not be read."""

    candidates: list[ModelCandidate]
    skipped: list[SkippedModel]


Suits = Callable[[ModelCandidate], bool]


def find_models(locations: Locations, folders: ModelFolders | None = None) -> LocalModels:
    """Search all folders; several links to one file count once."""
    candidates: dict[str, ModelCandidate] = {}
    skipped: list[SkippedModel] = []
    files: set[tuple[int, int]] = set()
    for found in _all_candidates(locations, folders or model_folders()):
        if isinstance(found, SkippedModel):
            skipped.append(found)
            continue
        identity = _file_identity(found)
        if identity is None or identity not in files:
            name = _unique_name(found, candidates)
            candidates[name] = replace(found, name=name)
        if identity is not None:
            files.add(identity)
    return LocalModels(list(candidates.values()), skipped)


def resolve_model(
    choice: str,
    locations: Locations,
    folders: ModelFolders | None = None,
    suits: Suits = lambda candidate: True,
) -> Path:
    """The file or folder of a model given by path or name; `default_model` if `choice` is empty.

    An existing path takes precedence over a name. Anything that ends in `.gguf` is a path, so that
    a mistyped one is reported as a missing file.

    Args:
        suits: see `find_model`.

    Raises:
        ModelError: no model has that name.
    """
    if not choice:
        return default_model(folders)
    if is_built_in(choice):
        return embedded()
    path = Path(choice).expanduser()
    if is_model(path) or path.suffix.lower() == GGUF_SUFFIX or _is_folder(choice, path):
        return path
    return find_model(choice, locations, folders, suits).files[0]


def default_model(folders: ModelFolders | None = None) -> Path:
    """The model to open by default: an installed package's, else the embedded one.

    A person who installs such a package wants a general model; the embedded one is for shell
    commands.
    """
    for found in _packaged(folders or model_folders()):
        if isinstance(found, ModelCandidate) and not found.missing:
            return found.files[0]
    return embedded()


def find_model(
    name: str,
    locations: Locations,
    folders: ModelFolders | None = None,
    suits: Suits = lambda candidate: True,
) -> ModelCandidate:
    """The model of that name, or the only one whose name contains it.

    Args:
        suits: tells whether a model can be used for the purpose; only such models are found by a
            part of their name, and suggested.

    Raises:
        ModelError: there is none, or more than one.
    """
    known = find_models(locations, folders).candidates
    name = current_name(name)
    wanted = name.casefold()
    for fits in (
        [candidate for candidate in known if candidate.name == name],
        [candidate for candidate in known if candidate.name.casefold() == wanted],
        [candidate for candidate in known if candidate.name.casefold().startswith(f"{wanted}:")],
        [candidate for candidate in known if wanted in _hub_names(candidate)],
        [one for one in known if wanted and wanted in one.name.casefold() and suits(one)],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            names = ", ".join(candidate.name for candidate in fits)
            raise ModelError(f"{name!r} matches {names}: give the full name")
    raise ModelError(
        f"no model {name!r}: `specchat models` lists the available ones"
        + _suggestion(name, [candidate.name for candidate in known if suits(candidate)])
    )


def _hub_names(candidate: ModelCandidate) -> set[str]:
    """Its possible names on the hub, in lower case: `ORG/REPO:` and its file or quantisation.

    Which of them the hub uses depends on files that are not on this machine.
    """
    folder, colon, _ = candidate.name.rpartition(":")
    stem = candidate.files[0].name.removesuffix(GGUF_SUFFIX)
    return {f"{folder}:{tag}".casefold() for tag in (stem, quantisation(stem)) if colon and tag}


def candidate_of(path: Path, found: Iterable[ModelCandidate]) -> ModelCandidate:
    """The one of `found` that the file at `path` belongs to, else a new one named by its path."""
    candidate = ModelCandidate(str(path.absolute()), GIVEN_BY_PATH, (path,))
    identity = _file_identity(candidate)
    for known in found:
        if path in known.files or (identity is not None and identity == _file_identity(known)):
            return known
    return replace(candidate, files=model_parts(path.absolute()))


def is_built_in(name: str) -> bool:
    """Whether `name` is the built-in model's, in this or earlier versions."""
    return name in _BUILT_IN_NAMES


def current_name(name: str) -> str:
    """The present name of a model that was stored or chosen as `name`."""
    return BUILT_IN if is_built_in(name) else name


def model_name(path: Path, locations: Locations) -> str:
    """The name of the model in the file at `path`."""
    if path == embedded():
        return BUILT_IN
    return candidate_of(path, find_models(locations).candidates).name


def _is_folder(choice: str, path: Path) -> bool:
    """Whether `choice` is meant as a folder rather than a name."""
    return os.path.isdir(path) and (path.is_absolute() or os.sep in choice or choice[:1] in ".~")


def _all_candidates(
    locations: Locations, folders: ModelFolders
) -> Iterator[ModelCandidate | SkippedModel]:
    """All models; of several with the same name the first keeps it."""
    yield from own_models(locations.models)
    yield from hugging_face_models(folders.hugging_face)
    for folder in folders.lm_studio:
        yield from lm_studio_models(folder)
    for folder in folders.ollama:
        yield from ollama_models(folder)
    yield from _packaged(folders)


def _packaged(folders: ModelFolders) -> Iterator[ModelCandidate | SkippedModel]:
    for folder in folders.packaged:
        yield from models_in_folder(folder, PYTHON_PACKAGE)


def _file_identity(candidate: ModelCandidate) -> tuple[int, int] | None:
    """Device and inode of its file, equal for all links; None if there is no file."""
    try:
        status = candidate.files[0].stat()
    except OSError:  # `describe` reports it
        return None
    return status.st_dev, status.st_ino


def _unique_name(candidate: ModelCandidate, taken: Mapping[str, object]) -> str:
    """The candidate's name, extended by its program and then a number if it is taken."""
    if candidate.name not in taken:
        return candidate.name
    name = f"{candidate.name}@{candidate.place.lower().replace(' ', '-')}"
    numbered = (f"{name}-{number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, MAX_SUGGESTIONS, MIN_SIMILARITY)
    within = [other for other in known if name.casefold() in other.casefold()]
    near = list(dict.fromkeys([*within, *close]))[:MAX_SUGGESTIONS]
    return f"; similar: {', '.join(near)}" if near else ""


def hugging_face_models(cache: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models in `cache`, as `ORG/REPO:QUANTISATION`."""
    repositories = list_folder(cache)
    if isinstance(repositories, SkippedModel):
        yield repositories
        return
    for folder in repositories:
        if folder.name.startswith(HUB_PREFIX):
            yield from _repository(folder)


def _repository(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models of the newest snapshot, and files of older ones under other names."""
    snapshots = list_folder(folder / "snapshots")
    if isinstance(snapshots, SkippedModel):
        yield snapshots
        return
    newest = _main_commit(folder)
    name = folder.name.removeprefix(HUB_PREFIX).replace("--", "/", 1)
    seen: set[str] = set()
    for snapshot in sorted(snapshots, key=lambda path: path.name != newest):
        if CONFIG_FILE not in seen and has_weights(snapshot):
            seen.add(CONFIG_FILE)
            yield ModelCandidate(name, HUGGING_FACE, (snapshot,))
        files = []
        for found in gguf_files(snapshot):
            if isinstance(found, SkippedModel):
                yield found
            elif (relative := str(found.relative_to(snapshot))) not in seen:
                seen.add(relative)
                files.append(found)
        yield from candidates_of(snapshot, files, HUGGING_FACE, name)


def _main_commit(folder: Path) -> str:
    """The commit of `main` at the last download; empty if unknown."""
    try:
        with (folder / "refs" / "main").open("rb") as file:
            return file.read(COMMIT_CHARACTERS).decode("ascii", "replace")
    except OSError:
        return ""


def lm_studio_models(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models in `folder`, as `PUBLISHER/REPO:QUANTISATION`."""
    return models_in_folder(folder, LM_STUDIO)


def ollama_models(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models in `folder`, by the names Ollama gives them."""
    manifests = folder / "manifests"
    for manifest in _manifests(manifests, MANIFEST_DEPTH):
        if isinstance(manifest, SkippedModel):
            yield manifest
            continue
        digest = _model_digest(manifest)
        if isinstance(digest, SkippedModel):
            yield digest
        elif digest:
            name = _ollama_name(manifest.relative_to(manifests).parts)
            yield ModelCandidate(name, OLLAMA, (folder / "blobs" / f"sha256-{digest}",))


def _manifests(folder: Path, depth: int) -> Iterator[Path | SkippedModel]:
    """The files exactly `depth` levels below `folder`; the fixed depth ends loops of links."""
    entries = list_folder(folder)
    if isinstance(entries, SkippedModel):
        yield entries
    elif depth == 1:
        yield from (path for path in entries if os.path.isfile(path) and path.name[0] != ".")
    else:
        for path in entries:
            yield from _manifests(path, depth - 1)


def _model_digest(manifest: Path) -> str | SkippedModel:
    """The model's SHA-256 in hexadecimal digits; empty if the manifest has no model layer."""
    try:
        with manifest.open("rb") as file:
            content = json.loads(file.read(MAX_MANIFEST_BYTES))
    except OSError as error:
        return SkippedModel(manifest, error.strerror or str(error))
    except (ValueError, RecursionError):
        return SkippedModel(manifest, "not a manifest")
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == MODEL_LAYER:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            return match[1] if match else SkippedModel(manifest, "it names no blob")
    return ""


def _ollama_name(parts: tuple[str, ...]) -> str:
    """`MODEL:TAG` as Ollama lists it, after host and namespace if they are not the defaults."""
    *path, model, tag = parts
    foreign = [part for part, default in zip(path, OLLAMA_DEFAULTS, strict=True) if part != default]
    return "/".join([*foreign, f"{model}:{tag}"])


def embedded() -> Path:
    """The answering model shipped with specchat."""
    return Path(str(files("assets") / EMBEDDED_FILE))


def embedded_draft_model() -> Path:
    """The draft model of the embedded model."""
    return Path(str(files("assets") / EMBEDDED_DRAFT_MODEL_FILE))


def embedded_question_model() -> Path:
    """The model that reranks passages for a question, whichever model answers."""
    return Path(str(files("assets") / EMBEDDED_QUESTION_MODEL_FILE))


def embedded_embedding_model() -> Path:
    """The embedding model for passages if the person has no other."""
    return Path(str(files("assets") / EMBEDDED_EMBEDDING_MODEL_FILE))


def own_models(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The embedded model, then those in `folder`."""
    yield ModelCandidate(BUILT_IN, SPECCHAT, (embedded(),))
    yield from models_in_folder(folder, SPECCHAT)
    entries = list_folder(folder)
    if not isinstance(entries, SkippedModel):
        for entry in filter(has_weights, entries):
            yield ModelCandidate(entry.name, SPECCHAT, (entry,))
