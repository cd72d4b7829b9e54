"""Attaching files to a message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datastores.errors import InputError

LARGEST = 4_000_000
"""Bytes; more fits into no context there is."""


def attach(text: str, files: Sequence[Path]) -> str:
    """`text` with the contents of `files` before it, each under its name.

    Raises:
        InputError: a file is missing, too large or no text.
    """
    parts = [f"File {path.name}:\n\n{read_text(path).rstrip()}\n" for path in files]
    return "\n".join([*parts, text])


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputError: it is missing, too large or no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > LARGEST:
        raise InputError(f"{path} is larger than {LARGEST // 1_000_000} MB: attach a part of it")
    return decoded(content, str(path))


def decoded(content: bytes, name: str) -> str:
    """`content` as text.

    Raises:
        InputError: what `name` names holds no UTF-8 text.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: convert it first") from error
