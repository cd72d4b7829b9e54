"""Where in its notes an answer comes from, token by token.

Owns the alignment that guides attention in training. Knows answers and pages by their text alone,
so that any chat whose notes hold the asked task is aligned, however it was made.
"""

import re

import numpy as np
from numpy.typing import NDArray

NOWHERE = -1
"""In place of an index: this token stands in no notes."""

_ANSWER = re.compile(
    r"<\|im_start\|>assistant\n"
    r"Use(?P<led> `(?P<name>[^`]*)`\. (?P<what>.*):\n\n```sh\n(?P<command>.*)\n```)"
)
_TASK = re.compile(r"^- (?P<what>.*)(?P<colon>:)\n\n`(?P<command>.*`)", re.MULTILINE)

Indices = NDArray[np.int16]


def align(text: str, starts: NDArray[np.int64], ids: NDArray[np.uint16]) -> tuple[Indices, Indices]:
    """For each token of a chat, the one it is copied from and the one that tells its task.

    ``text`` is the chat in ChatML, ``starts`` (n,) the character at which each of its tokens
    begins, ``ids`` (n,) their ids. Returns two arrays (n,) of indices into the chat, `NOWHERE`
    where there is none. Copied are an answer's name, description and command. What tells the task
    is the colon behind its description in the notes, the first place that has read all of it: the
    answer's tokens are given that of the task asked for, and those of every command in the notes
    their own, so that a head which looks there makes the two alike.
    """
    copied, chosen = (np.full(len(ids), NOWHERE, np.int16) for _ in range(2))
    tasks: dict[tuple[str, str], re.Match[str]] = {}
    for task in _TASK.finditer(text):
        tasks.setdefault((task["what"], task["command"]), task)
        _point(chosen, starts, task.span("command"), task.start("colon"))
    for answer in _ANSWER.finditer(text):
        asked = tasks.get((answer["what"], f"{answer['command']}`"))
        if asked is None:
            continue
        _point(chosen, starts, answer.span("led"), asked.start("colon"))
        for part in ("what", "command"):
            _match(copied, starts, ids, answer.span(part), asked.start(part))
        title = text.rfind(f"# {answer['name']}\n", 0, asked.start())
        if title >= 0:
            _match(copied, starts, ids, answer.span("name"), title + len("# "))
    return copied, chosen


def _point(chosen: Indices, starts: NDArray[np.int64], span: tuple[int, int], place: int) -> None:
    """Point the tokens of ``span`` to the one at ``place``."""
    first, stop = np.searchsorted(starts, span)
    chosen[first:stop] = np.searchsorted(starts, place)


def _match(
    copied: Indices,
    starts: NDArray[np.int64],
    ids: NDArray[np.uint16],
    span: tuple[int, int],
    origin: int,
) -> None:
    """Align the tokens of ``span``, and the space before it, with those from ``origin`` on."""
    first, stop = np.searchsorted(starts, (span[0] - 1, span[1]))
    own = np.arange(first, stop)
    place = starts[own] - span[0] + origin
    found = np.searchsorted(starts, place)
    same = (starts[found] == place) & (ids[found] == ids[own])
    copied[own[same]] = found[same]
