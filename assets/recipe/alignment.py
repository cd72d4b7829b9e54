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
    r"<\|im_start\|>assistant\n(?P<all>Use `[^`]*`\. (?P<what>.*):\n\n```sh\n(?P<command>.*)\n```)"
)

Indices = NDArray[np.int16]


def align(text: str, starts: NDArray[np.int64], ids: NDArray[np.uint16]) -> tuple[Indices, Indices]:
    """For each token of a chat, the one it is copied from and the one that tells its task.

    ``text`` is the chat in ChatML, ``starts`` (n,) the character at which each of its tokens
    begins, ``ids`` (n,) their ids. Returns two arrays (n,) of indices into the chat, `NOWHERE`
    where there is none. Copied are an answer's description and command; what tells the task is
    the colon behind its description in the notes, the first place that has read all of it.
    """
    copied = np.full(len(ids), NOWHERE, np.int16)
    chosen = np.full(len(ids), NOWHERE, np.int16)
    for answer in _ANSWER.finditer(text):
        what, command = answer["what"], answer["command"]
        source = text.find(f"- {what}:\n\n`{command}`", 0, answer.start())
        if source < 0:
            continue
        asked = source + len("- ")
        run = asked + len(what) + len(":\n\n`")
        for part, origin in (("what", asked), ("command", run)):
            _match(copied, starts, ids, answer.span(part), origin)
        first, stop = np.searchsorted(starts, answer.span("all"))
        chosen[first + 1 : stop] = np.searchsorted(starts, asked + len(what))
    return copied, chosen


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
