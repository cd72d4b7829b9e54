"""Where a drafted token may come from: one bit for each source, in the order credit is given.

A drafter has one source or several (CREST tells past chats from notes and code). An accepted token
is credited to the first source, in this order, whose draft proposed it, so that rows add up. How
sources are called, coloured and lettered on a screen is the app's business.
"""

from __future__ import annotations

PROMPT = 1 << 0
"""This chat: prompt lookup in the tokens of the context itself."""
CHATS = 1 << 1
"""Past chats, through CREST."""
NOTES = 1 << 2
"""Imported notes and documents, through CREST."""
CODE = 1 << 3
"""Imported source code, through CREST."""
DENSE = 1 << 4
"""Past states of the model, through the dense index."""
STUDENT = 1 << 5
"""The distilled draft model."""
RECYCLE = 1 << 6
"""Successors recycled from logits the target has already computed."""

NAMES: dict[int, str] = {
    PROMPT: "prompt",
    CHATS: "chats",
    NOTES: "notes",
    CODE: "code",
    DENSE: "dense",
    STUDENT: "student",
    RECYCLE: "recycle",
}
"""Stable names, in the order of credit; keys of `by_drafter` in every report."""


def credited(sources: int) -> int:
    """The one source credited for an accepted token: the lowest bit; 0 if nobody drafted it."""
    return sources & -sources
