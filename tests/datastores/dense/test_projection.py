"""How states become keys: moments in a stream, the projection fitted to them, its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.dense.projection import (
    Floats,
    Moments,
    Projection,
    explained,
    fit,
    unpack_moments,
    unpack_projection,
)

WIDTH = 24


def states(count: int, seed: int = 0, width: int = WIDTH) -> Floats:
    """States with a mean, unequal variances and correlations, as hidden states have."""
    generator = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(width, width))
    raw = generator.normal(size=(count, width)) @ mixing + np.arange(width)
    return np.asarray(raw, np.float32)


def moments_of(sample: Floats) -> Moments:
    moments = Moments(sample.shape[1])
    moments.add(sample)
    return moments


def fitted(dimensions: int = 8) -> Projection:
    return fit(moments_of(states(400)), dimensions)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_moments_in_any_batches_are_those_of_all_at_once(batches: list[int]) -> None:
    whole = states(sum(batches) + 2)
    moments, start = Moments(WIDTH), 0
    for size in [*batches, 2]:
        moments.add(whole[start : start + size])
        start += size
    assert moments.count == len(whole)
    np.testing.assert_allclose(moments.mean, whole.mean(0, np.float64), rtol=1e-4, atol=1e-4)
    expected = np.cov(whole.T.astype(np.float64), bias=True)
    np.testing.assert_allclose(moments.covariance(), expected, rtol=2e-3, atol=2e-2)


def test_moments_survive_their_bytes_nearly_unrounded() -> None:
    moments = Moments(WIDTH)
    moments.add(states(300))
    again = unpack_moments(moments.pack())
    np.testing.assert_array_equal(again.mean, moments.mean)
    np.testing.assert_array_equal(np.diag(again.scatter), np.diag(moments.scatter))
    np.testing.assert_allclose(fit(again, 4).weights, fit(moments, 4).weights, atol=2e-3)
    with pytest.raises(ValueError, match="buffer"):
        unpack_moments(moments.pack()[:-1])


def test_the_projection_is_z_norm_then_pca_then_unit_length() -> None:
    sample = states(500)
    moments = Moments(WIDTH)
    moments.add(sample)
    projection = fit(moments, 5)
    normed = (sample - sample.mean(0)) / np.sqrt(sample.var(0) + 1e-6)
    _, _, rows = np.linalg.svd(normed, full_matrices=False)
    expected = normed @ rows[:5].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(projection.keys(sample)), np.abs(expected), atol=5e-3)


def test_explained_variance_grows_to_one_and_an_old_projection_keeps_less() -> None:
    moments, turned = Moments(WIDTH), Moments(WIDTH)
    moments.add(states(500))
    turned.add(states(500)[:, ::-1])
    shares = [explained(fit(moments, d), moments) for d in (1, 4, 12, WIDTH)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=1e-3)
    stale = explained(fit(moments, 4), turned)
    assert stale < 0.9 * explained(fit(turned, 4), turned)


def test_states_wider_than_most_are_fitted_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = moments_of(states(900, width=200))
    best = explained(fit(moments, 8), moments)
    monkeypatch.setattr("datastores.dense.projection.EXACT", 100)
    assert explained(fit(moments, 8), moments) >= 0.995 * best


def test_a_constant_dimension_and_a_zero_state_divide_by_nothing() -> None:
    moments = Moments(WIDTH)
    moments.add(np.ones((50, WIDTH), np.float32))
    projection = fit(moments, 4)
    assert np.isfinite(projection.keys(np.zeros((1, WIDTH), np.float32))).all()
    assert (projection.encode(np.ones((1, WIDTH), np.float32)) == 128).all()


def test_a_query_is_a_code_before_it_is_rounded() -> None:
    for projection in (fitted(), fit(moments_of(states(400)), 8, unit=False)):
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
