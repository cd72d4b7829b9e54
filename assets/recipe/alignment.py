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
    r"(?P<all>Use `(?P<name>[^`]*)`\. (?P<what>.*):\n\n```sh\n(?P<command>.*)\n```)"
)
_TASK = re.compile(r"^- .*(?P<colon>:)\n\n`(?P<command>.*`)", re.MULTILINE)

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
    copied = np.full(len(ids), NOWHERE, np.int16)
    chosen = np.full(len(ids), NOWHERE, np.int16)
    for task in _TASK.finditer(text):
        first, stop = np.searchsorted(starts, task.span("command"))
        chosen[first:stop] = np.searchsorted(starts, task.start("colon"))
    for answer in _ANSWER.finditer(text):
        task_text = f"- {answer['what']}:\n\n`{answer['command']}`"
        source = text.find(task_text, 0, answer.start())
        if source < 0:
            continue
        first, stop = np.searchsorted(starts, answer.span("all"))
        colon = source + len("- ") + len(answer["what"])
        chosen[first + 1 : stop] = np.searchsorted(starts, colon)
        title = text.rfind(f"# {answer['name']}\n", 0, source)
        origins = {"what": source + len("- "), "command": colon + len(":\n\n`")}
        if title >= 0:
            origins["name"] = title + len("# ")
        for part, origin in origins.items():
            _match(copied, starts, ids, answer.span(part), origin)
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
