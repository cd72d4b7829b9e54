"""The first bytes of a GGUF file: enough to refuse, with a plain reason, what is no model at all.

Reads 24 bytes; llama.cpp reads the rest. Layout: ggml's docs/gguf.md, section "File Structure".
"""

from __future__ import annotations

import struct
from pathlib import Path

from datastores.errors import ModelError

MAGIC = b"GGUF"
HEADER = struct.Struct("<4sIQQ")
VERSIONS = (2, 3)
MOST = 1 << 20
"""More tensors or metadata entries than any model has: such counts come from a damaged file."""


def check_header(path: Path) -> None:
    """Look at the file's beginning.

    Raises:
        ModelError: it is missing, unreadable, no GGUF, of an unknown version, or cut off.
    """
    raw = _first_bytes(path)
    if raw[:4] != MAGIC:
        raise ModelError(
            f"{path} is not a GGUF file: specchat runs GGUF models;"
            " choose one with --model, or leave --model out for the embedded one"
        )
    if len(raw) < HEADER.size:
        raise _damaged(path, "it ends within its header")
    _, version, tensors, entries = HEADER.unpack(raw)
    if version not in VERSIONS:
        raise ModelError(
            f"{path} is GGUF version {version}; specchat reads versions 2 and 3, little-endian:"
            " convert it with a current llama.cpp"
        )
    if tensors > MOST or entries > MOST:
        raise _damaged(path, f"it claims {tensors} tensors and {entries} metadata entries")


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEADER.size)
    except FileNotFoundError:
        raise ModelError(f"there is no model file {path}: check --model") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory: give the GGUF file itself") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path} is damaged ({reason}): download it again")
