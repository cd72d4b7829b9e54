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

BATCH = 1024
"""States merged at a time: bounds the temporary copies of a large batch."""
TINY = 1e-30
"""Below any variance that is not zero."""


class Moments:
    """Moments of vectors of one width.

    Attributes:
        count: vectors seen.
        mean: float64 [width].
        scatter: float32 [width, width], the sum of outer products of deviations from the mean.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean: NDArray[np.float64] = np.zeros(width)
        self.scatter: Floats = np.zeros((width, width), np.float32)

    @property
    def width(self) -> int:
        """Length of a vector."""
        return len(self.mean)

    def add(self, states: Floats) -> None:
        """Take in float32 [n, width]; n may be 0."""
        for start in range(0, len(states), BATCH):
            self._merge(states[start : start + BATCH])

    def _merge(self, states: Floats) -> None:
        fresh = len(states)
        total = self.count + fresh
        mean = states.mean(axis=0, dtype=np.float64)
        deviations = (states - mean).astype(np.float32)
        step = mean - self.mean
        self.scatter += deviations.T @ deviations
        shift = (step * np.sqrt(self.count * fresh / total)).astype(np.float32)
        self.scatter += np.outer(shift, shift)
        self.mean += step * (fresh / total)
        self.count = total

    def covariance(self) -> Floats:
        """float32 [width, width]; zeros before the first vector."""
        covariance: Floats = self.scatter / np.float32(max(self.count, 1))
        return covariance

    def pack(self) -> bytes:
        """Count, mean and scatter, little-endian.

        The scatter is symmetric, so its upper triangle is kept: the diagonal exactly, the rest as
        correlations in half precision, whose rounding is far below what sampling leaves uncertain.
        """
        diagonal = np.diag(self.scatter).astype("<f4")
        root = np.sqrt(np.maximum(diagonal, TINY))
        rows = (self.scatter[i, i + 1 :] / root[i] / root[i + 1 :] for i in range(self.width))
        return b"".join(
            (
                np.array([self.count, self.width], "<i8").tobytes(),
                self.mean.astype("<f8").tobytes(),
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
    moments.count = count
    moments.mean[:] = np.frombuffer(blob, "<f8", width, 16)
    diagonal = np.frombuffer(blob, "<f4", width, 16 + 8 * width)
    upper = np.frombuffer(blob, "<f2", width * (width - 1) // 2, 16 + 12 * width)
    root = np.sqrt(np.maximum(diagonal, TINY))
    start = 0
    for i in range(width):
        row = upper[start : start + width - 1 - i] * root[i] * root[i + 1 :]
        moments.scatter[i, i + 1 :] = moments.scatter[i + 1 :, i] = row
        start += width - 1 - i
    np.fill_diagonal(moments.scatter, diagonal)
    return moments
