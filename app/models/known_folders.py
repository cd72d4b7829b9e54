"""specchat's own models: the embedded one, and files the person put into its folder.

The cache of Hugging Face's libraries: `models--ORG--REPO/snapshots/COMMIT/FILE`.

The files of a snapshot are links to blobs named by their checksums. They are opened by the link,
since the parts of a model find one another by their names.

LM Studio's models: `PUBLISHER/REPO/FILE.gguf`, named like the repositories they came from.

Ollama's models: manifests name the blobs.

`manifests/HOST/NAMESPACE/MODEL/TAG` is an image's manifest in JSON; one of its layers is the model,
at `blobs/sha256-DIGEST`. Models made of safetensors have no such layer and are passed over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from app.models.gguf_files import (
    ModelCandidate,
    SkippedModel,
    gguf_files,
    list_folder,
    models_in_folder,
)
from app.models.gguf_files import candidates_of as bundled

HUGGING_FACE = "Hugging Face"
_PREFIX, _SEPARATOR = "models--", "--"
_COMMIT = 40
"""Characters of a commit's name."""


def hugging_face_models(cache: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models in `cache`, as `ORG/REPO:QUANTISATION`."""
    repositories = list_folder(cache)
    if isinstance(repositories, SkippedModel):
        yield repositories
        return
    for folder in repositories:
        if folder.name.startswith(_PREFIX):
            yield from _repository(folder)


def _repository(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The newest snapshot's models; an older one's where the newest has no file of that name."""
    snapshots = list_folder(folder / "snapshots")
    if isinstance(snapshots, SkippedModel):
        yield snapshots
        return
    newest = _head(folder)
    name = folder.name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1)
    seen: set[str] = set()
    for snapshot in sorted(snapshots, key=lambda path: path.name != newest):
        files = []
        for found in gguf_files(snapshot):
            if isinstance(found, SkippedModel):
                yield found
            elif (relative := str(found.relative_to(snapshot))) not in seen:
                seen.add(relative)
                files.append(found)
        yield from bundled(snapshot, files, HUGGING_FACE, name)


def _head(folder: Path) -> str:
    """The commit that `main` stood at when it was last fetched; empty where none is noted."""
    try:
        with (folder / "refs" / "main").open("rb") as file:
            return file.read(_COMMIT).decode("ascii", "replace")
    except OSError:
        return ""


LM_STUDIO = "LM Studio"


def lm_studio_models(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The models in `folder`."""
    return models_in_folder(folder, LM_STUDIO)


OLLAMA = "Ollama"
MODEL_LAYER = "application/vnd.ollama.image.model"
MAX_MANIFEST_BYTES = 1 << 20
MANIFEST_DEPTH = 4
"""Host, namespace, model, tag."""

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_DEFAULTS = ("registry.ollama.ai", "library")


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
            name = _name(manifest.relative_to(manifests).parts)
            yield ModelCandidate(name, OLLAMA, (folder / "blobs" / f"sha256-{digest}",))


def _manifests(folder: Path, depth: int) -> Iterator[Path | SkippedModel]:
    """What lies exactly `depth` levels below `folder`, which is what keeps a loop finite."""
    entries = list_folder(folder)
    if isinstance(entries, SkippedModel):
        yield entries
    elif depth == 1:
        yield from (path for path in entries if os.path.isfile(path) and path.name[0] != ".")
    else:
        for path in entries:
            yield from _manifests(path, depth - 1)


def _model_digest(manifest: Path) -> str | SkippedModel:
    """The model's SHA-256 in hexadecimal digits; empty where the manifest names no model."""
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


def _name(parts: tuple[str, ...]) -> str:
    """`MODEL:TAG` as Ollama lists it; what is not Ollama's own registry stands before it."""
    *path, model, tag = parts
    foreign = [part for part, default in zip(path, _DEFAULTS, strict=True) if part != default]
    return "/".join([*foreign, f"{model}:{tag}"])


SPECCHAT = "specchat"
EMBEDDED = "embedded"
"""The embedded model's name wherever a name is expected."""

EMBEDDED_TEMPERATURE = 0.0
"""Unless the person chose another: a specialist's likeliest answer is its best."""

_FILE = "target-f16.gguf"


def embedded() -> Path:
    """The model that is shipped with specchat."""
    return Path(str(files("assets") / _FILE))


def own_models(folder: Path) -> Iterator[ModelCandidate | SkippedModel]:
    """The embedded model, then those in `folder`."""
    yield ModelCandidate(EMBEDDED, SPECCHAT, (embedded(),))
    yield from models_in_folder(folder, SPECCHAT)
