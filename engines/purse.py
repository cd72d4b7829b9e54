"""What drafting may lose: so that no text, no drafter and no mistaken estimate makes answers slow.

Counted in plain passes. Every token emitted puts a little in; every verified draft puts in what it
saved and takes out what its pass cost beyond a plain one. A draft whose loss is not covered is not
verified, however well it promises. Where drafts win, the purse is full and does not matter; where
they lose, they have lost `START` passes and a share of `SHARE` at most.

Knows no drafts and no seconds.
"""

from __future__ import annotations

START = 2.0
"""Passes at hand before anything was won. Smaller starts and limited stakes, tried on the chats of
`gate.TOLERATED`, brought the first tokens of doubtful chats a little sooner and took more from
those whose drafts are good."""
SHARE = 0.015
"""Passes put in for each token."""
MOST = 20.0
"""Passes held at most: what may be lost again when a text turns."""


class Purse:
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
