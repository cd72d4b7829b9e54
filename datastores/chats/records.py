"""Rows of the history as frozen dataclasses, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datastores.tokens import unpack

SYSTEM = "system"
USER = "user"
ASSISTANT = "assistant"

STREAMING = ""
"""`finish` of an answer that is still being written."""
WHOLE = "stop"
"""`finish` of an answer that came to its own end, and of every message that is not an answer."""
INTERRUPTED = "interrupted"
"""`finish` of an answer stopped by the person, or by the death of the process that wrote it."""


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat: a tree of messages, and the leaf at which it is being read.

    Attributes:
        title: empty until it has one.
        private: stored, but never drafted from, indexed or trained on.
        system: the system prompt; empty for the model's own default.
        sampling: sampling settings that differ from the defaults, by name.
        active: id of the active leaf; None in an empty chat.
        created, updated: seconds since the epoch, UTC.
    """

    id: int
    title: str
    pinned: bool
    private: bool
    system: str
    sampling: Mapping[str, object]
    active: int | None
    created: float
    updated: float

    @property
    def tuned(self) -> bool:
        """Whether it has settings of its own."""
        return bool(self.system or self.sampling)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message; never overwritten once finished: edits and new answers are its siblings.

    Attributes:
        parent: id of the message it follows; None for a first message.
        role: system, user or assistant.
        content: the text, as it came (hostile: sanitised where it is shown).
        tokens: the exact token ids that stood in the context; empty where none were kept.
        model, tokenizer: fingerprints of what made `tokens`; empty where none did.
        finish: stop, length, context, interrupted, or empty while it is being written.
        statistics: figures of the answer, by name; empty for what people wrote.
        created: seconds since the epoch, UTC.
    """

    id: int
    chat: int
    parent: int | None
    role: str
    content: str
    tokens: tuple[int, ...]
    model: str
    tokenizer: str
    finish: str
    statistics: Mapping[str, object]
    created: float


CHAT_COLUMNS = "id, title, pinned, private, system, sampling, active, created, updated"
MESSAGE_COLUMNS = (
    "id, chat, parent, role, content, tokens, model, tokenizer, finish, statistics, created"
)


def chat_from_row(row: dict[str, Any]) -> Chat:
    """A row of `CHAT_COLUMNS`."""
    return Chat(
        **{
            **row,
            "pinned": bool(row["pinned"]),
            "private": bool(row["private"]),
            "sampling": json.loads(row["sampling"]),
        }
    )


def message_from_row(row: dict[str, Any]) -> StoredMessage:
    """A row of `MESSAGE_COLUMNS`."""
    return StoredMessage(
        **{
            **row,
            "tokens": unpack(row["tokens"]),
            "statistics": json.loads(row["statistics"]),
        }
    )
