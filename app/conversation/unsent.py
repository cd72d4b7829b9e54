"""Unsent prompts by chat, kept from one session to the next in a small JSON file.

Callers leave out those of private chats, and erase those of deleted chats with `retain_unsent`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from pathlib import Path

from datastores.errors import StoreError
from datastores.storage.files import write_atomic, write_bytes_atomic

NEW = "new"
"""The key of the text written in a chat that is not stored yet."""

UnsentTexts = Mapping[int | None, str]
"""Texts by chat; None is the chat that is not stored yet."""


def read_unsent(path: Path) -> dict[int | None, str]:
    """The texts of the last session; none if the file is missing.

    Raises:
        StoreError: it cannot be read, or was damaged. A damaged file is deleted, as it may hold
            texts of deleted chats.
    """
    try:
        stored = json.loads(path.read_bytes())
        return {None if key == NEW else int(key): str(text) for key, text in stored.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except (ValueError, AttributeError) as error:
        write_unsent(path, {})
        raise StoreError(
            f"{path} was damaged: what you had written and not sent is lost"
        ) from error


def write_unsent(path: Path, texts: UnsentTexts, *, durable: bool = True) -> None:
    """Replace the file, or delete it if there are no texts.

    Args:
        durable: wait until it is on disk.

    Raises:
        StoreError: it cannot be written.
    """
    stored = {NEW if chat is None else str(chat): text for chat, text in texts.items() if text}
    try:
        if not stored:
            path.unlink(missing_ok=True)
        elif durable:
            write_atomic(path, [json.dumps(stored)])
        else:
            write_bytes_atomic(path, [json.dumps(stored).encode()])
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; check its permissions") from error


def retain_unsent(path: Path, chats: Container[int]) -> None:
    """Erase the texts of all chats except `chats`.

    Raises:
        StoreError: the file cannot be written.
    """
    if path.exists():
        texts = read_unsent(path)
        write_unsent(path, {chat: texts[chat] for chat in texts if chat is None or chat in chats})
