"""Bounds how much time drafting may cost: verifying rejected drafts, and consulting drafters.

`LossLimiter` counts in plain passes. Every emitted token adds a little to the balance; every
verified draft adds what it saved and subtracts what its pass cost beyond a plain one. A draft is
not verified if its expected loss exceeds the balance, or if its pass costs more than the balance
and `MAX_STAKE`, however good its estimate: a nearly certain draft of 23 tokens once cost 18 passes,
and nothing more was drafted in the next thousand tokens. Where drafts win, the balance stays full.

`DrafterBackoff` decides whether consulting one drafter is worth its time at this step, and
`DrafterBackoffs` keeps its averages between sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite

from engines.draft_tree import FORMER_NAMES

INITIAL_PASSES = 2.0
"""Initial balance. Smaller initial balances and limited stakes brought the first tokens of doubtful
chats a little sooner and took more from those whose drafts are good (on the chats of
`MAX_POLLING_SHARE`)."""
PASSES_PER_TOKEN = 0.015
"""Passes added for each emitted token."""
MAX_PASSES = 20.0
"""Largest balance: what may be lost again when a text changes."""
MAX_STAKE = 2.0
"""Passes by which the cost of a certain draft may exceed the balance; also the largest debt."""

AVERAGE_DECAY = 0.9
"""Decay of the averages at each consultation."""
MAX_PAUSE_STEPS = 1024
"""Longest pause between two consultations. With 64, a draft model of three passes' time took 5 % of
the speed of a small target, whatever it was worth."""
MAX_LEARNING_PAUSE_STEPS = 8
"""Longest pause during which a drafter continues to learn at every step."""
MAX_POLLING_SHARE = 0.0015
"""Share of the speed that unsuccessful consultations may cost, so that cheap drafters are consulted
more often. On 26 first chats at temperature 1.5, it lost least of the values tried (0.970 of plain
speed after 200 tokens, 0.956 with 0.004; virtual time, one thread), for some 2 to 3 % of the greedy
gain."""
MIN_CONSULTATIONS = 4
"""Consultations before the first pause, unless they lose `MAX_INITIAL_LOSS` earlier."""
MAX_INITIAL_LOSS = 2.0
"""Tokens that the first consultations may lose: four of a draft model, at twice the time of a pass
of a small target, took 5 % of the first chats' time."""
PAUSE_GROWTH = 8.0
"""Growth factor of a pause for each token that a consultation costs, if that is more than double: a
cheap drafter may be tried often, one as slow as the target may not."""
MAX_WINNINGS = 8.0
"""Most tokens won that a drafter may lose again in unsuccessful consultations."""
WINNINGS_SHARE = 0.1
"""Share of the speed that unsuccessful consultations may cost while the winnings last, at every
second step at most. A drafter wins seldom and much: with long pauses, ten failures in a row by
chance paused a draft model for hundreds of steps (speed relative to the best fixed length 1.00
instead of 1.07; virtual time, embedded model at the costs of a copy four times as wide)."""
MAX_RESTORED_PAUSE_STEPS = 64
"""Longest initial pause in a session: the drafter's store or the texts may have changed."""
MAX_SPIKE_RATIO = 1.5
"""Factor of the average that one consultation counts for at most: another program had the core, or
a draft model read a new text, for which it has an allowance of its own. With 4, one such reading
inflated the average of ten consultations and paused a good draft model (speed 2.16 instead of 2.24
of plain; virtual time, embedded model)."""


class LossLimiter:
    """Keeps the balance of passes that may be lost at present."""

    def __init__(self) -> None:
        self._passes = INITIAL_PASSES

    def allows(self, extra: float, probability: float) -> bool:
        """Whether to risk a pass that costs `extra` plain passes more than a plain one, and wins
        them back with `probability`."""
        stake = self._passes + MAX_STAKE
        return extra <= stake and (1.0 - probability) * extra <= self._passes

    def record(self, tokens: int, extra: float) -> None:
        """Record a pass that emitted `tokens` and cost `extra` plain passes beyond a plain one."""
        balance = self._passes + PASSES_PER_TOKEN * tokens + tokens - 1 - extra
        self._passes = min(balance, MAX_PASSES)


@dataclass(slots=True)
class DrafterBackoff:
    """Consults a drafter at every step while it pays, and at intervals otherwise.

    A drafter's earlier winnings may be spent on consulting it often, in case it pays again.

    Attributes:
        seconds: average time of a consultation, planning included.
        utility: average tokens it adds to a step, less their verification, less those that plain
            decoding writes in `seconds`.
        consultations: number of consultations so far.
        pause: steps to skip between consultations; at least doubled each time the drafter does
            not pay.
        skipped: steps skipped since the last consultation.
        winnings: tokens it has added, less the cost of its consultations, within limits.
        polling_share, winnings_share: shares of the speed that unsuccessful consultations may cost
            without and with winnings.
    """

    seconds: float = 0.0
    utility: float = 0.0
    consultations: int = 0
    pause: int = 0
    skipped: int = 0
    winnings: float = 0.0
    polling_share: float = MAX_POLLING_SHARE
    winnings_share: float = WINNINGS_SHARE

    @property
    def keeps_learning(self) -> bool:
        """Whether it is consulted often enough to continue to learn."""
        return self.pause <= MAX_LEARNING_PAUSE_STEPS

    def should_consult(self) -> bool:
        """Whether to consult it at this step; otherwise the step counts as skipped."""
        if self.skipped < self.pause:
            self.skipped += 1
            return False
        self.skipped = 0
        return True

    def record(self, gain: float, seconds: float, rate: float) -> None:
        """Record that a consultation of `seconds` added `gain` tokens; `rate` is plain
        decoding's, in tokens per second."""
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
        elif (
            self.consultations >= MIN_CONSULTATIONS
            or (self.consultations - 1) * self.utility < -MAX_INITIAL_LOSS
        ):
            cost = rate * self.seconds
            longest = min(MAX_PAUSE_STEPS, ceil(cost / self.polling_share) - 1)
            if self.winnings > 0.0:
                longest = min(longest, max(ceil(cost / self.winnings_share) - 1, 1))
            growth = max(2.0, PAUSE_GROWTH * cost)
            self.pause = min(ceil(growth * self.pause) + 1, longest)


class DrafterBackoffs(dict[str, DrafterBackoff]):
    """A backoff for each drafter, by name, created on first use."""

    def __missing__(self, name: str) -> DrafterBackoff:
        self[name] = backoff = DrafterBackoff()
        return backoff

    def state(self) -> dict[str, dict[str, float]]:
        """Cost and utility of each drafter as plain JSON values."""
        return {
            name: {"seconds": one.seconds, "utility": one.utility, "pause": one.pause}
            for name, one in self.items()
            if one.consultations >= MIN_CONSULTATIONS
        }

    def restore(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Continue from a saved `state`.

        Raises:
            ValueError: the state is damaged.
        """
        for name, kept in state.items():
            seconds, utility, pause = kept["seconds"], kept["utility"], kept["pause"]
            if not (seconds >= 0.0 and pause >= 0 and isfinite(seconds + utility)):
                raise ValueError("costs out of range")
            self[FORMER_NAMES.get(name, name)] = DrafterBackoff(
                seconds, utility, MIN_CONSULTATIONS, int(min(pause, MAX_RESTORED_PAUSE_STEPS))
            )
