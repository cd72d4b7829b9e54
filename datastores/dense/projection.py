"""How a hidden state becomes a key of 64 bytes: z-norm, PCA, unit length, 8 bits a dimension.

Owns the projection of one generation (DReSD, Gritta et al. 2025, sections 3.2 to 3.4, equations 1
and 2), how it is fitted to running moments, and its bytes. Refuses to know where states come from
and where keys are kept.

Mean, variance and covariance of a model's hidden states, gathered in a stream.

Owns running moments: exact over everything they were shown, no sample of it kept. Batches are
merged by Chan, Golub and LeVeque's pairwise rule ("Algorithms for Computing the Sample Variance",
1983, equation 2.1), which neither cancels nor needs a second pass. Refuses to know models, tokens
and files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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


Codes = NDArray[np.uint8]
"""Keys, uint8 [n, dimensions]: round(coordinate · scale) + 128."""

DIMENSIONS = 64
"""Principal components kept: DReSD's choice (table 2); fewer lose hits, more gain next to none."""
EPSILON = 1e-6
"""Added to variances and lengths, so that a constant dimension or a zero state divides by no 0."""
SPREAD = 4.0
"""Standard deviations of the widest component that 8 bits must hold; what is beyond is clipped."""

EXACT = 1024
"""Width of states up to which all components are computed, to keep the widest."""
SPARE, PRODUCTS = 16, 8
"""Directions looked for beyond those kept, and products taken, for wider states."""
ZERO = 128.0
"""The code of a coordinate of 0."""

_MAGIC = b"specchat-projection-1\n"


@dataclass(frozen=True, slots=True)
class Projection:
    """The map of one generation, states to keys.

    Attributes:
        offset: float32 [dimensions], subtracted after the product: the mean, projected.
        weights: float32 [width, dimensions], components divided by standard deviations.
        scale: codes for a coordinate of 1.
        unit: whether keys are brought to unit length.
    """

    offset: Floats
    weights: Floats
    scale: float
    unit: bool = True

    @property
    def width(self) -> int:
        """Length of a state."""
        return int(self.weights.shape[0])

    @property
    def dimensions(self) -> int:
        """Length of a key: bytes it takes."""
        return int(self.weights.shape[1])

    def keys(self, states: Floats) -> Floats:
        """float32 [n, dimensions] of float32 [n, width], before they are rounded to codes."""
        keys: Floats = states @ self.weights - self.offset
        if self.unit:
            keys /= np.maximum(np.linalg.norm(keys, axis=1, keepdims=True), EPSILON)
        return keys

    def query(self, state: Floats) -> Floats:
        """float32 [dimensions] of float32 [width]: what to compare codes with, not rounded."""
        key: Floats = state @ self.weights
        key -= self.offset
        length = max(math.sqrt(float(key @ key)), EPSILON) if self.unit else 1.0
        key *= self.scale / length
        key += ZERO
        return key

    def encode(self, states: Floats) -> Codes:
        """The codes of float32 [n, width]."""
        rounded = np.rint(self.keys(states) * self.scale).clip(-127.0, 127.0) + ZERO
        codes: Codes = rounded.astype(np.uint8)
        return codes

    def pack(self) -> bytes:
        """Everything above, little-endian."""
        shape = np.array([self.width, self.dimensions, self.unit], "<i8").tobytes()
        scale = np.array([self.scale], "<f8").tobytes()
        arrays = self.offset.astype("<f4").tobytes() + self.weights.astype("<f4").tobytes()
        return _MAGIC + shape + scale + arrays


def unpack_projection(blob: bytes) -> Projection:
    """What `Projection.pack` made.

    Raises:
        ValueError: it begins as nothing that this specchat packs.
    """
    start = len(_MAGIC)
    if not blob.startswith(_MAGIC):
        raise ValueError("no projection")
    width, dimensions, unit = (int(number) for number in np.frombuffer(blob, "<i8", 3, start))
    scale = float(np.frombuffer(blob, "<f8", 1, start + 24)[0])
    arrays = np.frombuffer(blob, "<f4", -1, start + 32).astype(np.float32)
    weights = arrays[dimensions:].reshape(width, dimensions)
    return Projection(arrays[:dimensions], weights, scale, bool(unit))


def fit(
    moments: Moments, dimensions: int = DIMENSIONS, *, z: bool = True, unit: bool = True
) -> Projection:
    """The projection of `moments`: z-norm (unless told not to), then the widest components.

    `dimensions` is cut to the width of the states.
    """
    covariance = moments.covariance()
    deviations = _deviations(covariance) if z else np.ones(moments.width, np.float32)
    values, vectors = _widest(covariance / np.outer(deviations, deviations), dimensions)
    weights: Floats = (vectors / deviations[:, None]).astype(np.float32)
    offset: Floats = (moments.mean @ weights).astype(np.float32)
    return Projection(offset, weights, _scale(values, unit), unit)


def _widest(matrix: Floats, count: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """The largest eigenvalues of a symmetric matrix, falling, and their vectors in columns.

    Large matrices are decomposed within a subspace that repeated products turn to the widest
    directions (Halko, Martinsson, Tropp 2011, algorithm 4.4): all of it would take a minute.
    """
    basis = None
    if len(matrix) > EXACT:
        random = np.random.default_rng(0).standard_normal((len(matrix), count + SPARE), np.float32)
        basis = np.linalg.qr(matrix @ random)[0]
        for _ in range(PRODUCTS):
            basis = np.linalg.qr(matrix @ basis)[0]
        matrix = basis.T @ matrix @ basis
    values, vectors = np.linalg.eigh(matrix)
    widest = np.argsort(-values, kind="stable")[:count]
    chosen = vectors[:, widest] if basis is None else basis @ vectors[:, widest]
    return values[widest], chosen


def explained(projection: Projection, moments: Moments, *, z: bool = True) -> float:
    """Share of the (z-normed) variance of `moments` that lies in the projection's span, 0 to 1.

    For the projection fitted to these moments it is PCA's explained variance (DReSD, figure 5);
    for an older one it tells how much of the present material that one still sees.
    """
    covariance = moments.covariance()
    deviations = _deviations(covariance) if z else np.ones(moments.width, np.float32)
    basis, _ = np.linalg.qr(projection.weights * deviations[:, None])
    normed = covariance / np.outer(deviations, deviations)
    return float(np.einsum("wd,wd->", basis, normed @ basis) / max(np.trace(normed), EPSILON))


def _deviations(covariance: Floats) -> Floats:
    """Standard deviation of each dimension, with epsilon (equation 1)."""
    deviations: Floats = np.sqrt(np.diag(covariance) + EPSILON).astype(np.float32)
    return deviations


def _scale(values: NDArray[np.floating], unit: bool) -> float:
    """Codes for a coordinate of 1, such that `SPREAD` deviations of the widest component fit."""
    variance = max(float(values[0]), EPSILON)
    if unit:
        variance /= max(float(values.sum()), EPSILON)
        return 127.0 / min(1.0, SPREAD * float(np.sqrt(variance)))
    return 127.0 / (SPREAD * float(np.sqrt(variance)))
