"""Bounds how much time drafting may cost: verifying rejected drafts, and consulting drafters.

`LossLimiter` counts in plain passes. Every emitted token adds a little; every verified draft adds
what it saved and subtracts what its pass cost beyond a plain one. A draft is not verified if its
expected loss exceeds the balance, or if its pass costs more than the balance and `MAX_STAKE`,
however good its estimate: a nearly certain draft of 23 tokens once cost 18 passes, and nothing more
was drafted in the next thousand tokens. Where drafts win, the balance is full and does not matter.

`DrafterBackoff` decides whether consulting one drafter is worth its time at this step, and
`DrafterBackoffs` keeps what was found between sessions.

Knows no drafts: only tokens, costs and rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite

from engines.draft_tree import FORMER_NAMES

INITIAL_PASSES = 2.0
"""Balance before anything was won. Smaller initial balances and limited stakes, tried on the chats
of `MAX_POLLING_SHARE`, brought the first tokens of doubtful chats a little sooner and took more
from those whose drafts are good."""
PASSES_PER_TOKEN = 0.015
"""Passes added for each emitted token."""
MAX_PASSES = 20.0
"""Largest balance: what may be lost again when a text changes."""
MAX_STAKE = 2.0
"""Passes by which a sure draft's cost may exceed the balance: also the largest debt."""

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
"""Consultations before the first pause, unless they lose `MAX_INITIAL_LOSS` before."""
MAX_INITIAL_LOSS = 2.0
"""Tokens that the first consultations may lose: four of a draft model, at twice the time of a pass
of a small target, took 5 % of the first chats' time."""
PAUSE_GROWTH = 8.0
"""By what factor a pause grows for each token that a consultation costs, where that is more than
double: a cheap drafter may be given many chances, one as slow as the target may not."""
MAX_WINNINGS = 8.0
"""The most tokens won that a drafter may lose again in fruitless consultations."""
WINNINGS_SHARE = 0.1
"""Share of the speed that fruitless consultations may cost while the winnings last; every second
step may have one. A drafter wins seldom and much: with long pauses a draft model was paused for
hundreds of steps after ten fruitless consultations in a row, by chance (virtual time, 12 to 14
answers of the embedded model at the costs of the copy four times as wide: total speed 1.00 of that
of the best fixed length, 1.07 with a consultation at every second step)."""
MAX_RESTORED_PAUSE_STEPS = 64
"""Longest pause with which a drafter begins a session: its store or the texts may have changed."""
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
        stake = self._passes + MAX_STAKE
        return extra <= stake and (1.0 - probability) * extra <= self._passes

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
        pause: steps to skip between consultations; at least doubled each time the drafter does
            not pay.
        skipped: steps skipped since the last one.
        winnings: tokens it has added, less what its consultations cost, within limits.
        polling_share, winnings_share: share of the speed that fruitless consultations may cost
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
    """A backoff for each drafter, by name, made when it is first asked for."""

    def __missing__(self, name: str) -> DrafterBackoff:
        self[name] = backoff = DrafterBackoff()
        return backoff

    def state(self) -> dict[str, dict[str, float]]:
        """What each drafter cost and brought, as plain JSON values."""
        return {
            name: {"seconds": one.seconds, "utility": one.utility, "pause": one.pause}
            for name, one in self.items()
            if one.consultations >= MIN_CONSULTATIONS
        }

    def restore(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Continue from a saved `state`.

        Raises:
            ValueError: it is damaged.
        """
        for name, kept in state.items():
            seconds, utility, pause = kept["seconds"], kept["utility"], kept["pause"]
            if not (seconds >= 0.0 and pause >= 0 and isfinite(seconds + utility)):
                raise ValueError("costs out of range")
            self[FORMER_NAMES.get(name, name)] = DrafterBackoff(
                seconds, utility, MIN_CONSULTATIONS, int(min(pause, MAX_RESTORED_PAUSE_STEPS))
            )
