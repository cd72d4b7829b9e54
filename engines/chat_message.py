"""A message, as templates and assistants pass it: who spoke, what, and in which tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: "system", "user" or "assistant".
        content: its text.
        tokens: the ids the model wrote it with, which stand in the KV cache; empty where they are
            unknown or belong to another tokenizer. They are the truth: never tokenised again.
    """

    role: str
    content: str
    tokens: tuple[int, ...] = ()
