"""How many tokens of a prompt to read at once: as many as still let Esc feel prompt.

A chunk is a step of a ladder and moves only when it is far off, because the chunking of a prompt
shows in the last bits of its KV cache: the same prompt should be read the same way again.
"""

from __future__ import annotations

SMALLEST, LARGEST = 16, 512
TOO_SLOW, TOO_FAST = 0.3, 0.04
"""Seconds for one chunk outside of which the chunk is halved or doubled."""
WANTED = 0.15
OPERATIONS_PER_SECOND = 3e10
"""What one processor core makes of a prompt, for the first guess only."""


class Pace:
    """The present chunk size, in tokens; a power of two."""

    def __init__(self, parameters: int, threads: int, on_device: bool) -> None:
        """Guess from the number of weights: two operations for each weight and token."""
        seconds = 2 * parameters / (threads * OPERATIONS_PER_SECOND)
        self.rows = LARGEST
        while not on_device and self.rows > SMALLEST and self.rows * seconds > WANTED:
            self.rows //= 2

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a chunk; a short last one tells nothing."""
        if rows < self.rows:
            return
        if seconds > TOO_SLOW and self.rows > SMALLEST:
            self.rows //= 2
        elif seconds < TOO_FAST and self.rows < LARGEST:
            self.rows *= 2
