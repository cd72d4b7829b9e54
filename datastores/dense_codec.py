"""How a hidden state becomes a key of 64 bytes: z-norm, PCA, unit length, 8 bits a dimension.

Owns the projection of one generation (DReSD, Gritta et al. 2025, sections 3.2 to 3.4, equations 1
and 2), how it is fitted to running moments, and its bytes. Refuses to know where states come from
and where keys are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.dense_moments import Floats, Moments

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
