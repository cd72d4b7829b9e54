"""A long conversation rendered in parts that overlap, for templates whose time grows quadratically.

Gemma 4's looks back over all messages at each: one second for 400 of them, eight for 2,000. What a
template puts around a message depends on its neighbours, on the beginning and on the end. So the
parts are joined within two turns that both have rendered, and only where they agree on what stands
around a whole turn; a template that numbers its turns is told apart by that.

Owns where parts begin, end and meet. Refuses to know templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.chat_template.formats import ASSISTANT, SYSTEM, USER
from engines.chat_template.prompt_builder import Segment

PART_TURNS = 24
"""Turns in a part, beside those that it shares with the next. A chat of fewer is rendered whole."""


@dataclass(frozen=True, slots=True)
class Seam:
    """Where one part goes over to the next: three questions that follow each other.

    Attributes:
        begin: the message with which the later part begins.
        meeting: the message from which on the later part is used.
        end: the message with which the earlier part ends, as if it was to be answered.
    """

    begin: int
    meeting: int
    end: int


def find_seams(roles: Sequence[str]) -> list[Seam]:
    """Where to cut a conversation; nowhere if it is short."""
    turns = [at for at in range(1, len(roles)) if (roles[at - 1], roles[at]) == (ASSISTANT, USER)]
    return [
        Seam(turns[number - 2], turns[number - 1], turns[number])
        for number in range(PART_TURNS, len(turns), PART_TURNS)
    ]


def parts_between(seams: Sequence[Seam], roles: Sequence[str]) -> list[list[int]]:
    """The messages of each part, by index: each with the system prompt, if there is one."""
    system = [0] if roles[0] == SYSTEM else []
    begins = [len(system), *(seam.begin for seam in seams)]
    ends = [*(seam.end + 1 for seam in seams), len(roles)]
    return [[*system, *range(begin, end)] for begin, end in zip(begins, ends, strict=True)]


def join(
    parts: Sequence[Sequence[int]], rendered: Sequence[Sequence[Segment]], seams: Sequence[Seam]
) -> list[Segment] | None:
    """The whole conversation; None where neighbours differ in what they have both rendered.

    Args:
        rendered: for each part, literals and contents in alternation, literals first and last.
    """
    joined = list(rendered[0])
    for part, segments, seam in zip(parts[1:], rendered[1:], seams, strict=True):
        before, after = 2 * seam.meeting, 2 * part.index(seam.meeting)
        turn = 2 * (seam.end - seam.meeting)
        if joined[before : before + turn] != segments[after : after + turn]:
            return None
        joined[before:] = segments[after:]
    return joined
