"""The cost of a forward pass on this machine: V(n, L), wall time of a step with n rows at length L.

It is learned from live steps and short interleaved probes; nothing is measured at start-up. It is
stored as the time of a plain step for each octave of the context length, and for each width its
ratio to that: ratios hardly change with L, so a width measured in one chat serves the next.

On a shared machine single steps mislead, and a width once measured as expensive would never be
tried again. So the steepness of the curve is fitted to all samples together, each width's median is
weighted against that fit by the number of its samples, and old samples are dropped until the width
is probed once more. While plain steps take longer than usual, wider ones are compared with these;
otherwise a busy period makes drafts look hopeless long after it (with half of the passes slowed by
1.3 to 3, virtual time, Qwen2.5 1.5B edits code at 1.29 instead of 1.21 of plain speed). The curve
is not monotone: quantised kernels process rows by fours or sixteens, and Qwen2.5 1.5B in Q4_K_M
evaluates 16 rows in the time of 8.

A plain step after a wider one takes longer, because llama.cpp rebuilds its graph: 0.65 ms where a
plain step takes 1.0 ms. Plain decoding has no such steps, so the excess is charged to the wider
step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import median

MAX_SAMPLES = 15
"""Samples kept for each width and octave; medians over these, since shared machines are noisy."""
WIDTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
"""Widths that are measured; others are interpolated."""
MIN_SAMPLES = 3
"""Samples from which on a width counts as measured."""
REFIT_INTERVAL = 16
"""Observations between two fits of the curve."""
MEDIAN_INTERVAL = 5
"""Plain steps between two updates of their median, which one of 15 samples hardly changes."""
PRIOR_SAMPLES = 2.0
"""Weight, in samples, of the curve fitted to all widths at each of them."""
RECENT_STEPS = 3
"""Plain steps that show how busy the machine is at present: a wider step is compared with them
where they take longer than usual."""
MAX_JUMP = 1.6
"""Factor by which a sample may exceed the expected ratio: the excess is other programs' use of the
cores. A curve that is truly steeper is reached in a few samples."""
MAX_DIP = 1.4
"""Largest ratio of the cost of fewer rows to that of more rows. Of Qwen2.5 1.5B in Q4_K_M, 15 rows
take 1.43 times as long as 16."""
PRIOR_REEVALUATION = 1.2
"""Cost of re-evaluating n rows in units of V(n), before it is measured."""
STALE_STEPS = 500
"""Steps after which a width that did not occur in them loses its oldest sample."""


def prior_ratio(rows: int) -> float:
    """V(n) ÷ V(1) before it is measured: a CPU's curve, the least favourable kind."""
    return float(1.0 + 0.65 * (rows - 1) ** 0.7)


class CostModel:
    """V(n, L) of one model on one machine."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._live: set[int] = set()
        self._since_median = 0
        self._ratios: dict[int, deque[float]] = {}
        self._reevaluations = deque[float]((PRIOR_REEVALUATION,), maxlen=MAX_SAMPLES)
        self._last_rows = 1
        self._recent = deque[float]((0.0,), maxlen=RECENT_STEPS)
        self._excess = deque[float]((0.0,), maxlen=MAX_SAMPLES)
        self._curve = [prior_ratio(max(rows, 1)) for rows in range(WIDTHS[-1] + 1)]
        self._since_refit = 0
        self._steps = 0
        self._seen: set[int] = set()
        self._tables: dict[float, list[float]] = {}

    def observe(self, rows: int, length: int, seconds: float) -> None:
        """Record a step that took `seconds` with `rows` rows at context length `length`."""
        self._age(rows)
        if rows == 1 < self._last_rows and self._plain:
            seconds = self._charge_excess(length, seconds)
        self._last_rows = rows
        if rows == 1:
            self._recent.append(seconds)
            self._observe_plain(_octave(length), seconds)
        elif self._plain:
            plain = max(self.plain(length), median(self._recent))
            ratio = min(seconds / plain, MAX_JUMP * self._curve[rows])
            self._ratios.setdefault(rows, deque(maxlen=MAX_SAMPLES)).append(ratio)
            self._since_refit += 1
            if self._since_refit >= REFIT_INTERVAL or len(self._ratios[rows]) <= MIN_SAMPLES:
                self._refit()

    def _observe_plain(self, octave: int, seconds: float) -> None:
        samples = self._plain.setdefault(octave, deque(maxlen=MAX_SAMPLES))
        samples.append(seconds)
        self._live.add(octave)
        self._since_median += 1
        if len(samples) < MAX_SAMPLES or self._since_median >= MEDIAN_INTERVAL:
            self._medians.pop(octave, None)
            self._since_median = 0

    def _charge_excess(self, length: int, seconds: float) -> float:
        """Charge a plain step's excess over other plain steps to the wider step before it.

        Returns:
            the seconds that the plain step would have taken after another plain one.
        """
        excess = max(seconds / self.plain(length) - 1.0, 0.0)
        usual = median(self._excess)
        self._excess.append(excess)
        if samples := self._ratios.get(self._last_rows):
            samples[-1] += usual
        return seconds / (1.0 + usual)

    def observe_reevaluation(self, rows: int, length: int, seconds: float) -> None:
        """Record that restoring a checkpoint and re-evaluating `rows` rows took `seconds`."""
        self._reevaluations.append(seconds / self.table(length)[rows])

    @property
    def reevaluation(self) -> float:
        """Cost of re-evaluating n rows, in units of V(n)."""
        return median(self._reevaluations)

    def plain(self, length: int) -> float:
        """Seconds of a plain step at context length `length`, from the nearest measured octave."""
        if not self._plain:
            return 0.02
        octave = _octave(length)
        if octave not in self._plain:
            octave = min(self._plain, key=lambda known: abs(known - octave))
        if octave not in self._medians:
            self._medians[octave] = median(self._plain[octave])
        return self._medians[octave]

    def measured(self, length: int) -> bool:
        """Whether `plain(length)` rests on steps of this session at this length."""
        octave = _octave(length)
        return octave in self._live and len(self._plain[octave]) >= MIN_SAMPLES

    def ratio(self, rows: int) -> float:
        """V(rows) ÷ V(1), at any context length."""
        return self._curve[rows] / self._curve[1]

    def table(self, length: int) -> list[float]:
        """Seconds for 0, 1, 2 … rows; entry 0 is unused."""
        plain = self.plain(length)
        if plain not in self._tables:
            self._tables = {plain: [plain * ratio for ratio in self._curve]}
        return self._tables[plain]

    def unmeasured(self) -> Iterator[int]:
        """Widths that still lack samples, narrow ones first."""
        return (rows for rows in WIDTHS if len(self._ratios.get(rows, ())) < MIN_SAMPLES)

    def _age(self, rows: int) -> None:
        """Drop samples of widths that no longer occur, one for each `STALE_STEPS`."""
        self._seen.add(rows)
        self._steps += 1
        if self._steps % STALE_STEPS == 0:
            for width in self._ratios.keys() - self._seen:
                self._ratios[width].popleft()
            self._ratios = {width: kept for width, kept in self._ratios.items() if kept}
            self._seen = set()
            self._refit()

    def _refit(self) -> None:
        """Fit the curve to the medians, weighted by their numbers of samples."""
        self._since_refit = 0
        self._tables = {}
        medians = {rows: (median(kept), len(kept)) for rows, kept in self._ratios.items()}
        steepness = _steepness(medians)
        known = [(1, 1.0)]
        for rows in sorted(medians):
            measured, count = medians[rows]
            fitted = 1.0 + steepness * (prior_ratio(rows) - 1.0)
            blend = (count * measured + PRIOR_SAMPLES * fitted) / (count + PRIOR_SAMPLES)
            known.append((rows, max(blend, 1.0)))
        known = _without_peaks(known)
        for (low, at_low), (high, at_high) in pairwise(known):
            for rows in range(low, min(high, WIDTHS[-1]) + 1):
                share = (rows - low) / (high - low)
                self._curve[rows] = at_low + share * (at_high - at_low)
        last, at_last = known[-1]
        for rows in range(last + 1, WIDTHS[-1] + 1):
            further = steepness * (prior_ratio(rows) - prior_ratio(last))
            self._curve[rows] = at_last + further

    def state(self) -> dict[str, dict[str, list[float]]]:
        """The measurements as plain JSON values."""
        return {
            "plain": {str(octave): list(kept) for octave, kept in self._plain.items()},
            "ratios": {str(rows): list(kept) for rows, kept in self._ratios.items()},
            "reevaluations": {"all": list(self._reevaluations)},
        }

    def restore(self, state: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Continue from a saved `state`."""
        for octave, kept in state.get("plain", {}).items():
            self._plain[int(octave)] = deque(kept, maxlen=MAX_SAMPLES)
        for rows, kept in state.get("ratios", {}).items():
            self._ratios[int(rows)] = deque(kept, maxlen=MAX_SAMPLES)
        former = state.get("replays", {})
        self._reevaluations.extend(state.get("reevaluations", former).get("all", ()))
        self._refit()


def _steepness(medians: Mapping[int, tuple[float, int]]) -> float:
    """Ratio of V(n) − V(1) to the prior's, over all samples; 1 without any."""
    weight = sum(count * (prior_ratio(rows) - 1.0) for rows, (_, count) in medians.items())
    extra = sum(count * (measured - 1.0) for measured, count in medians.values())
    return max(extra / weight, 0.0) if weight else 1.0


def _without_peaks(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The curve (width, ratio), lowered where a width is much costlier than a wider one."""
    lowered, cheapest = [], inf
    for rows, ratio in reversed(curve):
        cheapest = min(cheapest, ratio)
        lowered.append((rows, min(ratio, MAX_DIP * cheapest)))
    return lowered[::-1]


def _octave(length: int) -> int:
    return max(length, 256).bit_length()
