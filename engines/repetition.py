"""Finds an answer that repeats itself over and over, word for word or with small changes.

Small models fall into such loops, greedy ones above all, and write on to the longest answer. A loop
is an answer whose last `WINDOW` tokens are nearly all in runs that stood there several times
before: sampling breaks the exact period of a loop, but not its runs. What repeats a few times is
left alone (a verse's refrain, a file shown again), as are lists of similar lines, in which each
line has something of its own, and what is copied: a run counts only as often as it stands in the
answer more than in the prompt, as in code with long tables of zeros.

A pure function of the tokens, so that drafted and plain answers end at the same one. Knows no text.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

WINDOW = 200
"""Tokens at the end of an answer that have to be a loop's."""
RUN = 8
"""Tokens of a run."""
MIN_EARLIER = 3
"""Times that a run stood in the answer before, to be a loop's."""
MAX_OTHER = 0.15
"""Share of the window that is in no such run. With 3 times, of 700 sources and documents read as
answers (2,000 tokens of SmolLM2 each) one ends early, a long list of identical entries."""
LOOKED_AT = 2048
"""Tokens of the answer in which runs are counted."""
CHECK_TOKENS = 16
"""Tokens from one look to the next: a look that finds no loop copies `LOOKED_AT` tokens."""

Run = tuple[int, ...]


def is_looping(tokens: Sequence[int], start: int) -> bool:
    """Whether the answer, which is `tokens` from `start` on, ends in a loop.

    Asked after each token; it looks after every `CHECK_TOKENS` tokens of the answer.
    """
    length = len(tokens) - start
    if length < WINDOW or length % CHECK_TOKENS:
        return False
    answer = tokens[max(start, len(tokens) - LOOKED_AT) :]
    if not _ends_in_old_run(answer):
        return False
    runs = _runs(answer)
    earlier, counts = list[int](), Counter[Run]()
    for run in runs:
        earlier.append(counts[run])
        counts[run] += 1
    copied = _count(tokens[:start], set(runs[-WINDOW:]))
    ended = zip(runs[-WINDOW:], earlier[-WINDOW:], strict=True)
    old = sum(times >= MIN_EARLIER + copied[run] for run, times in ended)
    return old >= WINDOW * (1 - MAX_OTHER)


def _ends_in_old_run(answer: Sequence[int]) -> bool:
    """Whether the last run may be old, as a cheap first look: at bytes, where one that begins
    within a token counts too."""
    raw = array("q", answer).tobytes()
    return raw.count(array("q", answer[-RUN:]).tobytes()) > MIN_EARLIER


def _runs(tokens: Sequence[int]) -> list[Run]:
    """Every run of `RUN` tokens, by its end."""
    return [tuple(tokens[end - RUN : end]) for end in range(RUN, len(tokens) + 1)]


def _count(tokens: Sequence[int], wanted: set[Run]) -> Counter[Run]:
    """How often each of the runs `wanted` stands in `tokens`."""
    return Counter(run for run in _runs(tokens) if run in wanted)
