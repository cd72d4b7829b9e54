"""Renders a long conversation in overlapping parts, for templates that take quadratic time.

Gemma 4's looks back over all messages at each one: one second for 400 messages, eight for 2,000.
What a template puts around a message depends on its neighbours and on the two ends. So parts are
joined within two turns that both contain, and only if both rendered the same around a whole turn.
That fails, as it should, for a template that numbers its turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.chat_template.prompt_builder import ASSISTANT, SYSTEM, USER, Segment

PART_TURNS = 24
"""Turns in a part, besides those shared with the next. Shorter chats are rendered as a whole."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Where two parts overlap: the indices of three consecutive questions.

    Attributes:
        begin: the first message of the later part.
        meeting: the first message for which the later part is used.
        end: the last message of the earlier part, which ends as if it was to be answered.
    """

    begin: int
    meeting: int
    end: int


def find_seams(roles: Sequence[str]) -> list[Seam]:
    """Where to cut a conversation; empty if it is short."""
    turns = [at for at in range(1, len(roles)) if (roles[at - 1], roles[at]) == (ASSISTANT, USER)]
    return [
        Seam(turns[number - 2], turns[number - 1], turns[number])
        for number in range(PART_TURNS, len(turns), PART_TURNS)
    ]


def parts_between(seams: Sequence[Seam], roles: Sequence[str]) -> list[list[int]]:
    """The message indices of each part; each begins with the system message, if any."""
    system = [0] if roles[0] == SYSTEM else []
    begins = [len(system), *(seam.begin for seam in seams)]
    ends = [*(seam.end + 1 for seam in seams), len(roles)]
    return [[*system, *range(begin, end)] for begin, end in zip(begins, ends, strict=True)]


def join(
    parts: Sequence[Sequence[int]], rendered: Sequence[Sequence[Segment]], seams: Sequence[Seam]
) -> list[Segment] | None:
    """Join the rendered parts; None if neighbours differ where they overlap.

    Args:
        rendered: for each part, alternating literals and contents, literals first and last.
    """
    joined = list(rendered[0])
    for part, segments, seam in zip(parts[1:], rendered[1:], seams, strict=True):
        before, after = 2 * seam.meeting, 2 * part.index(seam.meeting)
        turn = 2 * (seam.end - seam.meeting)
        if joined[before : before + turn] != segments[after : after + turn]:
            return None
        joined[before:] = segments[after:]
    return joined
