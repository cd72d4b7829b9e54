"""Bounds how much time drafting may cost: verifying rejected drafts, and consulting drafters.

`LossLimiter` counts in plain passes. Every emitted token adds a little; every verified draft adds
what it saved and subtracts what its pass cost beyond a plain one. A draft whose possible loss
exceeds the balance is not verified, however good its estimate. Where drafts win, the balance is
full and does not matter; where they lose, the loss is at most `INITIAL_PASSES` passes plus
`PASSES_PER_TOKEN` for each token.

`DrafterBackoff` decides whether consulting one drafter is worth its time at this step.

Knows no drafts: only tokens, costs and rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

INITIAL_PASSES = 2.0
"""Balance before anything was won. Smaller initial balances and limited stakes, tried on the chats
of `MAX_POLLING_SHARE`, brought the first tokens of doubtful chats a little sooner and took more
from those whose drafts are good."""
PASSES_PER_TOKEN = 0.015
"""Passes added for each emitted token."""
MAX_PASSES = 20.0
"""Largest balance: what may be lost again when a text changes."""

AVERAGE_DECAY = 0.9
"""Decay of the averages at each consultation."""
MAX_PAUSE_STEPS = 1024
"""Steps between two consultations of a drafter that has not paid for long. With 64 a draft model of
three passes' time took 5 % of the speed of a small target, whatever it was worth."""
MAX_LEARNING_PAUSE_STEPS = 8
"""Longest pause during which a drafter goes on learning at every step."""
MAX_POLLING_SHARE = 0.0015
"""Share of the speed that fruitless consultations may cost: a cheap drafter is consulted more
often. There are several of them, and merging and learning come on top. Of the values tried, on 26
first chats in virtual time with one thread's costs, this one lost least at temperature 1.5 (0.970
of plain speed after 200 tokens, 0.956 with 0.004), for perhaps 2 to 3 % of the greedy gain."""
MIN_CONSULTATIONS = 4
"""Consultations before the first pause."""
MAX_WINNINGS = 8.0
"""The most tokens won that a drafter may lose again in fruitless consultations."""
MAX_POLLING_PAUSE_STEPS = 1
"""Longest pause while the winnings last. A drafter wins seldom and much: a draft model was paused
for hundreds of steps after ten fruitless consultations in a row, by chance. In virtual time (12 to
14 answers of the embedded model, costs of the copy four times as wide, no history), total speed was
1.07 of that of the best fixed length; with long pauses, 1.00 at somewhat steeper costs. At the
embedded model's own costs, with pauses and with this: 1.03 and 1.18 on chats with nothing to reuse,
1.15 and 1.21 without a draft model; there a drafter could lose one token before it had won any."""
MAX_SPIKE_RATIO = 1.5
"""One consultation counts for at most this many average ones: another program had the core, or a
draft model read a new text, for which it has an allowance of its own. With 4, such a reading made
each of the next ten consultations look twice as slow, and a good draft model was paused (virtual
time, answers of the embedded model at the costs of its copy four times as wide, with history: total
speed 2.24 of plain, against 2.16)."""


class LossLimiter:
    """The passes that may be lost at present."""

    def __init__(self) -> None:
        self._passes = INITIAL_PASSES

    def allows(self, extra: float, probability: float) -> bool:
        """Whether to risk a pass that costs `extra` plain ones beyond its own, and wins them back
        with `probability`."""
        return (1.0 - probability) * extra <= self._passes

    def record(self, tokens: int, extra: float) -> None:
        """A pass that cost `extra` plain ones beyond its own gave `tokens` tokens."""
        balance = self._passes + PASSES_PER_TOKEN * tokens + tokens - 1 - extra
        self._passes = min(balance, MAX_PASSES)


@dataclass(slots=True)
class DrafterBackoff:
    """Consults a drafter at every step while it pays; else now and then, never switched off.

    What it has won before may be spent on consulting it often, in case it pays again.

    Attributes:
        seconds: average time of a consultation, planning included.
        utility: average tokens it adds to a step, less their verification, less λ · seconds.
        consultations: so far.
        pause: steps to skip between consultations; doubled each time the drafter does not pay.
        skipped: steps skipped since the last one.
        winnings: tokens it has added, less what its consultations cost, within limits.
    """

    seconds: float = 0.0
    utility: float = 0.0
    consultations: int = 0
    pause: int = 0
    skipped: int = 0
    winnings: float = 0.0

    @property
    def keeps_learning(self) -> bool:
        """Whether it is consulted often enough to go on learning."""
        return self.pause <= MAX_LEARNING_PAUSE_STEPS

    def should_consult(self) -> bool:
        """Whether to consult it at this step; counts the step as skipped if not."""
        if self.skipped < self.pause:
            self.skipped += 1
            return False
        self.skipped = 0
        return True

    def record(self, gain: float, seconds: float, rate: float) -> None:
        """A consultation of `seconds` added `gain` tokens; `rate` is λ in tokens per second."""
        if self.consultations:
            seconds = min(seconds, MAX_SPIKE_RATIO * self.seconds)
        self.consultations += 1
        # The first one counts only until the second: it loads, reads, and finds cold caches.
        blend = max(1.0 - AVERAGE_DECAY, 1.0 / max(self.consultations - 1, 1))
        self.seconds += blend * (seconds - self.seconds)
        utility = gain - rate * seconds
        self.utility += blend * (utility - self.utility)
        self.winnings = min(max(self.winnings + utility, 0.0), MAX_WINNINGS)
        if self.utility >= 0.0:
            self.pause = 0
        elif self.consultations >= MIN_CONSULTATIONS:
            longest = min(MAX_PAUSE_STEPS, ceil(rate * self.seconds / MAX_POLLING_SHARE) - 1)
            if self.winnings > 0.0:
                longest = min(longest, MAX_POLLING_PAUSE_STEPS)
            self.pause = min(2 * self.pause + 1, longest)
