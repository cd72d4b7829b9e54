"""Mean, variance and covariance of a model's hidden states, gathered in a stream.

Owns running moments: exact over everything they were shown, no sample of it kept. Batches are
merged by Chan, Golub and LeVeque's pairwise rule ("Algorithms for Computing the Sample Variance",
1983, equation 2.1), which neither cancels nor needs a second pass. Refuses to know models, tokens
and files.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BATCH = 256
"""States merged at a time. A merge reads and writes the whole scatter, 128 MB for states of 4096
numbers, so it must not follow every word that is said."""
TINY = 1e-30
"""Below any variance that is not zero."""


class Moments:
    """Moments of vectors of one width."""

    def __init__(self, width: int) -> None:
        self._merged = 0
        self._mean: NDArray[np.float64] = np.zeros(width)
        self._scatter: Floats = np.zeros((width, width), np.float32)
        self._waiting: list[Floats] = []
        self._waits = 0

    @property
    def width(self) -> int:
        """Length of a vector."""
        return len(self._mean)

    @property
    def count(self) -> int:
        """Vectors seen."""
        return self._merged + self._waits

    @property
    def mean(self) -> NDArray[np.float64]:
        """float64 [width]."""
        self._settle()
        return self._mean

    @property
    def scatter(self) -> Floats:
        """float32 [width, width], the sum of outer products of deviations from the mean."""
        self._settle()
        return self._scatter

    def add(self, states: Floats) -> None:
        """Take in float32 [n, width], which must not change any more; n may be 0."""
        self._waiting.append(states)
        self._waits += len(states)
        if self._waits >= BATCH:
            self._settle()

    def _settle(self) -> None:
        """Merge what waits."""
        if self._waits:
            states = np.concatenate(self._waiting)
            for start in range(0, len(states), BATCH):
                self._merge(states[start : start + BATCH])
        self._waiting, self._waits = [], 0

    def _merge(self, states: Floats) -> None:
        fresh = len(states)
        total = self._merged + fresh
        mean = states.mean(axis=0, dtype=np.float64)
        deviations = (states - mean).astype(np.float32)
        step = mean - self._mean
        shift = (step * np.sqrt(self._merged * fresh / total)).astype(np.float32)
        spread = np.concatenate([deviations, shift[None]])
        self._scatter += spread.T @ spread
        self._mean += step * (fresh / total)
        self._merged = total

    def covariance(self) -> Floats:
        """float32 [width, width]; zeros before the first vector."""
        covariance: Floats = self.scatter / np.float32(max(self.count, 1))
        return covariance

    def pack(self) -> bytes:
        """Count, mean and scatter, little-endian.

        The scatter is symmetric, so its upper triangle is kept: the diagonal exactly, the rest as
        correlations in half precision, whose rounding is far below what sampling leaves uncertain.
        """
        scatter = self.scatter
        diagonal = np.diag(scatter).astype("<f4")
        root = np.sqrt(np.maximum(diagonal, TINY))
        rows = (scatter[i, i + 1 :] / root[i] / root[i + 1 :] for i in range(self.width))
        return b"".join(
            (
                np.array([self.count, self.width], "<i8").tobytes(),
                self._mean.astype("<f8").tobytes(),
                diagonal.tobytes(),
                *(row.astype("<f2").tobytes() for row in rows),
            )
        )


def unpack_moments(blob: bytes) -> Moments:
    """What `Moments.pack` made.

    Raises:
        ValueError: it is not as long as its width demands.
    """
    count, width = (int(number) for number in np.frombuffer(blob, "<i8", 2))
    moments = Moments(width)
    moments._merged = count
    moments._mean[:] = np.frombuffer(blob, "<f8", width, 16)
    diagonal = np.frombuffer(blob, "<f4", width, 16 + 8 * width)
    upper = np.frombuffer(blob, "<f2", width * (width - 1) // 2, 16 + 12 * width)
    root = np.sqrt(np.maximum(diagonal, TINY))
    start = 0
    for i in range(width):
        row = upper[start : start + width - 1 - i] * root[i] * root[i + 1 :]
        moments._scatter[i, i + 1 :] = moments._scatter[i + 1 :, i] = row
        start += width - 1 - i
    np.fill_diagonal(moments._scatter, diagonal)
    return moments
