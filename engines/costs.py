"""What a forward pass costs on this machine: V(n, L), wall time of a cycle with n rows at length L.

Learned from live cycles and short interleaved probes; nothing is measured at start-up. Kept as the
time of a plain cycle for each octave of the context length, and for each width its ratio to that:
ratios hardly move with L, so a width measured in one chat serves the next.

Owns measurements. Decides nothing (`engines.budget` does).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

SAMPLES = 15
"""Kept for each width and octave: medians over these, since shared machines are noisy."""
WIDTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
"""Widths worth knowing; others are interpolated."""
TRUSTED = 3
"""Samples from which a measurement counts."""
REFRESH = 16
"""Observations after which the table is computed anew."""


def prior_ratio(rows: int) -> float:
    """V(n) ÷ V(1) where nothing is measured: a CPU's curve, the least favourable kind."""
    return float(1.0 + 0.65 * (rows - 1) ** 0.7)


class Costs:
    """V(n, L) of one model on one machine."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._live: set[int] = set()
        self._ratios: dict[int, deque[float]] = {}
        self._curve = [prior_ratio(max(rows, 1)) for rows in range(WIDTHS[-1] + 1)]
        self._since = 0
        self._tables: dict[float, list[float]] = {}

    def observe(self, rows: int, length: int, seconds: float) -> None:
        """One cycle took `seconds` with `rows` rows at context length `length`."""
        if rows == 1:
            octave = _octave(length)
            self._plain.setdefault(octave, deque(maxlen=SAMPLES)).append(seconds)
            self._medians.pop(octave, None)
            self._live.add(octave)
        elif self._plain:
            ratio = seconds / self.plain(length)
            self._ratios.setdefault(rows, deque(maxlen=SAMPLES)).append(ratio)
            self._since += 1
            if self._since >= REFRESH or len(self._ratios[rows]) <= TRUSTED:
                self._refit()

    def plain(self, length: int) -> float:
        """Seconds of a plain cycle at context length `length`, from the nearest octave measured."""
        if not self._plain:
            return 0.02
        octave = _octave(length)
        if octave not in self._plain:
            octave = min(self._plain, key=lambda known: abs(known - octave))
        if octave not in self._medians:
            self._medians[octave] = median(self._plain[octave])
        return self._medians[octave]

    def measured(self, length: int) -> bool:
        """Whether `plain(length)` rests on calls of this session at this length."""
        octave = _octave(length)
        return octave in self._live and len(self._plain[octave]) >= TRUSTED

    def table(self, length: int) -> list[float]:
        """Seconds for 0, 1, 2 … rows, monotone from 1 row on; entry 0 is unused."""
        plain = self.plain(length)
        if plain not in self._tables:
            self._tables = {plain: [plain * ratio for ratio in self._curve]}
        return self._tables[plain]

    def unmeasured(self) -> list[int]:
        """Widths that still lack samples, narrow ones first."""
        return [rows for rows in WIDTHS if len(self._ratios.get(rows, ())) < TRUSTED]

    def _refit(self) -> None:
        """Interpolate the medians, the prior's shape filling in what is not measured; isotonic."""
        self._since = 0
        self._tables = {}
        points = [(1, 1.0)]
        for rows in sorted(self._ratios):
            points.append((rows, max(points[-1][1], median(self._ratios[rows]))))
        for (low, at_low), (high, at_high) in pairwise(points):
            for rows in range(low, min(high, WIDTHS[-1]) + 1):
                share = (rows - low) / (high - low)
                self._curve[rows] = at_low + share * (at_high - at_low)
        last, at_last = points[-1]
        for rows in range(last + 1, WIDTHS[-1] + 1):
            self._curve[rows] = at_last * prior_ratio(rows) / prior_ratio(last)

    def state(self) -> dict[str, dict[str, list[float]]]:
        """What was learnt, as plain JSON values."""
        return {
            "plain": {str(octave): list(kept) for octave, kept in self._plain.items()},
            "ratios": {str(rows): list(kept) for rows, kept in self._ratios.items()},
        }

    def restore(self, state: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Go on from a saved `state`."""
        for octave, kept in state.get("plain", {}).items():
            self._plain[int(octave)] = deque(kept, maxlen=SAMPLES)
        for rows, kept in state.get("ratios", {}).items():
            self._ratios[int(rows)] = deque(kept, maxlen=SAMPLES)
        self._refit()


def _octave(length: int) -> int:
    return max(length, 256).bit_length()
