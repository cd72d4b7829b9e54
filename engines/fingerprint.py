"""The identity of a model's weights: the key of its hidden states and statistics."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from datastores.errors import ModelError

HEAD_BYTES = 1 << 20
"""Bytes hashed from the start of each file: formats keep their metadata there."""
WHOLE_BYTES = 12 << 20
"""Largest file that is hashed whole, such as a draft head for a target of width 1,024."""
SAMPLES = 256
SAMPLE_BYTES = 1 << 14
"""Bytes of each evenly spread sample. 4 MiB of any file, so that start-up never reads gigabytes;
of a 5 GB model, every matrix above 20 MB is sampled."""


def fingerprint(path: Path) -> str:
    """A hash of 32 hexadecimal digits that depends on the weights alone, not on file names.

    Raises:
        ModelError: there are no weights at `path`, or they cannot be read.
    """
    files = _files(path)
    if not files:
        raise ModelError(
            f"{path} holds no weights: give a GGUF file or a folder with *.safetensors"
        )
    digest = hashlib.sha256()
    try:
        for file in files:
            with file.open("rb") as stream:
                _sample(stream, file.stat().st_size, digest)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def digest_of_norm(scales: bytes) -> str:
    """A hash of 32 hexadecimal digits of the scales of a model's final norm, in float32.

    All quantisations of the same weights share it, in any format, as these scales are not
    quantised. Training changes it, except where it changes matrices alone (LoRA).
    """
    return hashlib.sha256(scales).hexdigest()[:32]


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted([*path.glob("*.safetensors"), *path.glob("config.json")])
    return [path] if path.is_file() else []


def _sample(stream: BinaryIO, size: int, digest: hashlib._Hash) -> None:
    """Feed the size, the head and evenly spread samples (all of a small file) to `digest`."""
    digest.update(size.to_bytes(8, "little"))
    digest.update(stream.read(HEAD_BYTES))
    spread = 0 if size <= WHOLE_BYTES else (size - HEAD_BYTES) // SAMPLES
    step = max(SAMPLE_BYTES, spread)
    for offset in range(HEAD_BYTES, size, step):
        stream.seek(offset)
        digest.update(stream.read(SAMPLE_BYTES))
    if size > HEAD_BYTES:
        stream.seek(-min(SAMPLE_BYTES, size - HEAD_BYTES), 2)
        digest.update(stream.read())
