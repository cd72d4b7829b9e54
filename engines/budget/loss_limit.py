"""What drafting may lose: so that no text, no drafter and no mistaken estimate makes answers slow.

Counted in plain passes. Every token emitted puts a little in; every verified draft puts in what it
saved and takes out what its pass cost beyond a plain one. A draft whose loss is not covered is not
verified, however well it promises. Where drafts win, the purse is full and does not matter; where
they lose, they have lost `START` passes and a share of `SHARE` at most.

Knows no drafts and no seconds.

A drafter's gate: whether asking it is worth its time just now.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

MEMORY = 0.9
"""Decay of the averages at each consultation."""
LONGEST_PAUSE = 64
"""Steps between two questions to a drafter that has not paid for long."""
LISTENING = 8
"""Longest pause during which a drafter goes on learning at every step."""
TOLERATED = 0.0015
"""Share of the speed that asking in vain may cost: a cheap drafter is asked more often. There are
several of them, and merging and learning come on top. Of the values tried, on 26 first chats in
virtual time with one thread's costs, this one lost least at temperature 1.5 (0.970 of plain speed
after 200 tokens, 0.956 with 0.004), for perhaps 2 to 3 % of the greedy gain."""
PATIENCE = 4
"""Consultations before the first pause."""
SPIKE = 4.0
"""A consultation counts for no more than so many average ones: another program had the core."""


@dataclass(slots=True)
class DrafterBackoff:
    """Open while a drafter adds more than λ times its own time; else asked now and then.

    Attributes:
        seconds: average time of a consultation, planning included.
        worth: average tokens it adds to a step, less the verification they cost, less λ · seconds.
        pause: steps to skip between consultations; doubled each time the answer disappoints.
        skipped: steps skipped since the last one.
    """

    seconds: float = 0.0
    worth: float = 0.0
    asked: int = 0
    pause: int = 0
    skipped: int = 0

    @property
    def listens(self) -> bool:
        """Whether it is asked often enough that it should go on learning."""
        return self.pause <= LISTENING

    def opens(self) -> bool:
        """Whether to ask at this step."""
        if self.skipped < self.pause:
            self.skipped += 1
            return False
        self.skipped = 0
        return True

    def settle(self, gain: float, seconds: float, rate: float) -> None:
        """A consultation of `seconds` added `gain` tokens; `rate` is λ in tokens per second."""
        if self.asked:
            seconds = min(seconds, SPIKE * self.seconds)
        self.asked += 1
        blend = max(1.0 - MEMORY, 1.0 / self.asked)
        self.seconds += blend * (seconds - self.seconds)
        self.worth += blend * (gain - rate * seconds - self.worth)
        if self.worth >= 0.0:
            self.pause = 0
        elif self.asked >= PATIENCE:
            longest = min(LONGEST_PAUSE, ceil(rate * self.seconds / TOLERATED) - 1)
            self.pause = min(2 * self.pause + 1, longest)


START = 2.0
"""Passes at hand before anything was won. Smaller starts and limited stakes, tried on the chats of
`gate.TOLERATED`, brought the first tokens of doubtful chats a little sooner and took more from
those whose drafts are good."""
SHARE = 0.015
"""Passes put in for each token."""
MOST = 20.0
"""Passes held at most: what may be lost again when a text turns."""


class LossLimiter:
    """The passes that may be lost just now."""

    def __init__(self) -> None:
        self._passes = START

    def covers(self, extra: float, chance: float) -> bool:
        """Whether to risk a pass that costs `extra` plain ones beyond its own, and wins them back
        with probability `chance`."""
        return (1.0 - chance) * extra <= self._passes

    def settle(self, tokens: int, extra: float) -> None:
        """A pass that cost `extra` plain ones beyond its own gave `tokens` tokens."""
        self._passes = min(self._passes + SHARE * tokens + tokens - 1 - extra, MOST)
