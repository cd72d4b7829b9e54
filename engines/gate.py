"""A drafter's gate: whether asking it is worth its time just now."""

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
class Gate:
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
