"""Finds an answer that repeats itself over and over: a run of tokens with an exact period.

Small models fall into such loops, greedy ones above all, and write on to the longest answer. What
repeats a few times is left alone (lists of similar lines, empty rows of a table), and so is what is
copied: a run that stands in the prompt already, as in code with long tables of zeros.

A pure function of the tokens, so that drafted and plain answers end at the same one. Knows no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

MIN_TOKENS = 200
"""Length of a run that counts as a loop."""
MIN_PERIODS = 6
"""Times that its text stands there at least: ten empty rows of a table are no loop."""
MAX_PERIOD = 256
"""Longest text whose repetition is looked for, in tokens."""
CHECK_TOKENS = 16
"""Tokens from one look to the next: a look compares some hundred tokens."""


def is_looping(tokens: Sequence[int], start: int) -> bool:
    """Whether the answer, which is `tokens` from `start` on, ends in a loop.

    Asked after each token; it looks after every `CHECK_TOKENS` tokens of the answer.
    """
    length = len(tokens) - start
    if length < MIN_TOKENS or length % CHECK_TOKENS:
        return False
    answer = list(tokens[start:])
    return any(
        not _contains(tokens[:start], answer[-run:])
        for period in range(1, min(MAX_PERIOD, length // MIN_PERIODS) + 1)
        if (run := _run(answer, period)) >= max(MIN_TOKENS, MIN_PERIODS * period)
    )


def _run(tokens: Sequence[int], period: int) -> int:
    """Length of the longest end of `tokens` in which each token is that of one `period` before; 0
    where the last ones are not."""
    at = len(tokens) - 1
    while at >= period and tokens[at] == tokens[at - period]:
        at -= 1
    repeated = len(tokens) - 1 - at
    return repeated + period if repeated else 0


def _contains(tokens: Sequence[int], run: Sequence[int]) -> bool:
    """Whether `run` stands in `tokens`."""
    text, wanted = array("I", tokens), array("I", run).tobytes()
    raw, at = text.tobytes(), -1
    while (at := raw.find(wanted, at + 1)) >= 0:
        if at % text.itemsize == 0:
            return True
    return False
