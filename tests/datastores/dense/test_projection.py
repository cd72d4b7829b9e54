"""How states become keys: the projection fitted to a sample of them, and its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from datastores.dense.projection import (
    Floats,
    Projection,
    fit,
    unpack_projection,
)

WIDTH = 24


def states(count: int, seed: int = 0, width: int = WIDTH) -> Floats:
    """States with a mean, unequal variances and correlations, as hidden states have."""
    generator = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(width, width))
    raw = generator.normal(size=(count, width)) @ mixing + np.arange(width)
    return np.asarray(raw, np.float32)


def explained(projection: Projection, sample: Floats) -> float:
    """Share of the z-normed variance of `sample` in the projection's span, from 0 to 1."""
    deviations = np.sqrt(sample.var(0) + 1e-6)
    basis, _ = np.linalg.qr(projection.weights * deviations[:, None])
    normed = (sample - sample.mean(0)) / deviations
    return float(np.sum((normed @ basis) ** 2) / np.sum(normed**2))


def fitted(dimensions: int = 8) -> Projection:
    return fit(states(400), dimensions)


def test_the_projection_is_z_norm_then_pca_then_unit_length() -> None:
    sample = states(500)
    projection = fit(sample, 5)
    normed = (sample - sample.mean(0)) / np.sqrt(sample.var(0) + 1e-6)
    _, _, rows = np.linalg.svd(normed, full_matrices=False)
    expected = normed @ rows[:5].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(projection.keys(sample)), np.abs(expected), atol=5e-3)


def test_explained_variance_grows_to_one_and_another_projection_keeps_less() -> None:
    sample = states(500)
    turned = sample[:, ::-1]
    shares = [explained(fit(sample, d), sample) for d in (1, 4, 12, WIDTH)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=1e-3)
    assert explained(fit(sample, 4), turned) < 0.9 * explained(fit(turned, 4), turned)


def test_fewer_states_than_numbers_are_fitted_as_exactly() -> None:
    sample = states(150, width=200)
    normed = (sample - sample.mean(0)) / np.sqrt(sample.var(0) + 1e-6)
    values = np.linalg.svd(normed, compute_uv=False) ** 2
    assert explained(fit(sample, 8), sample) == pytest.approx(values[:8].sum() / values.sum())
    keys = fit(sample, 8).keys(sample)
    _, _, rows = np.linalg.svd(normed, full_matrices=False)
    expected = normed @ rows[:8].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(keys), np.abs(expected), atol=5e-3)


@pytest.mark.parametrize("count", [10, 50])
def test_a_constant_dimension_and_a_zero_state_divide_by_nothing(count: int) -> None:
    projection = fit(np.ones((count, WIDTH), np.float32), 4)
    assert np.isfinite(projection.keys(np.zeros((1, WIDTH), np.float32))).all()
    assert (projection.encode(np.ones((1, WIDTH), np.float32)) == 128).all()


def test_a_query_is_a_code_before_it_is_rounded() -> None:
    projection = fitted()
    for state, code in zip(states(30), projection.encode(states(30)), strict=True):
        np.testing.assert_allclose(projection.query(state).clip(1, 255), code, atol=0.502)


def test_a_projection_survives_its_bytes() -> None:
    projection = fitted()
    blob = projection.pack()
    again = unpack_projection(blob)
    np.testing.assert_array_equal(again.weights, projection.weights)
    np.testing.assert_array_equal(again.encode(states(9)), projection.encode(states(9)))
    with pytest.raises(ValueError, match="no projection"):
        unpack_projection(b"another" + blob)
