"""Ollama's models: manifests name the blobs.

`manifests/HOST/NAMESPACE/MODEL/TAG` is an image's manifest in JSON; one of its layers is the model,
at `blobs/sha256-DIGEST`. Models made of safetensors have no such layer and are passed over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from app.models.files import Candidate, Skipped, listing

PLACE = "Ollama"
MODEL_LAYER = "application/vnd.ollama.image.model"
LARGEST_MANIFEST = 1 << 20
DEPTH = 4
"""Host, namespace, model, tag."""

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_DEFAULTS = ("registry.ollama.ai", "library")


def candidates(folder: Path) -> Iterator[Candidate | Skipped]:
    """The models in `folder`, by the names Ollama gives them."""
    manifests = folder / "manifests"
    for manifest in _manifests(manifests, DEPTH):
        if isinstance(manifest, Skipped):
            yield manifest
            continue
        digest = _model_digest(manifest)
        if isinstance(digest, Skipped):
            yield digest
        elif digest:
            name = _name(manifest.relative_to(manifests).parts)
            yield Candidate(name, PLACE, (folder / "blobs" / f"sha256-{digest}",))


def _manifests(folder: Path, depth: int) -> Iterator[Path | Skipped]:
    """What lies exactly `depth` levels below `folder`, which is what keeps a loop finite."""
    entries = listing(folder)
    if isinstance(entries, Skipped):
        yield entries
    elif depth == 1:
        yield from (path for path in entries if os.path.isfile(path) and path.name[0] != ".")
    else:
        for path in entries:
            yield from _manifests(path, depth - 1)


def _model_digest(manifest: Path) -> str | Skipped:
    """The model's SHA-256 in hexadecimal digits; empty where the manifest names no model."""
    try:
        with manifest.open("rb") as file:
            content = json.loads(file.read(LARGEST_MANIFEST))
    except OSError as error:
        return Skipped(manifest, error.strerror or str(error))
    except (ValueError, RecursionError):
        return Skipped(manifest, "not a manifest")
    layers = content.get("layers") if isinstance(content, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == MODEL_LAYER:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            return match[1] if match else Skipped(manifest, "it names no blob")
    return ""


def _name(parts: tuple[str, ...]) -> str:
    """`MODEL:TAG` as Ollama lists it; what is not Ollama's own registry stands before it."""
    *path, model, tag = parts
    foreign = [part for part, default in zip(path, _DEFAULTS, strict=True) if part != default]
    return "/".join([*foreign, f"{model}:{tag}"])
