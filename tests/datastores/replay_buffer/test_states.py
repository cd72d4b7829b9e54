"""States: rounded to a byte an element, and refused where they are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.replay_buffer.states import MAX_CODE, encode, pack, unpack


@given(st.integers(0, 99), st.integers(1, 20), st.integers(1, 40), st.floats(1e-3, 1e3))
def test_every_element_is_right_to_half_a_step(
    seed: int, count: int, width: int, spread: float
) -> None:
    hidden = np.random.default_rng(seed).normal(0.0, spread, (count, width)).astype(np.float32)
    hidden[0] = 0.0
    states = unpack(count, pack(encode(hidden)))
    steps = np.abs(hidden).max(axis=1, keepdims=True) / MAX_CODE
    assert (np.abs(states.decoded() - hidden) <= 0.501 * steps).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_not_finite_is_refused(value: float) -> None:
    hidden = np.ones((2, 3), np.float32)
    states = encode(hidden)
    hidden[1, 2] = value
    with pytest.raises(ValueError, match="not finite"):
        encode(hidden)
    states.scales[1] = value
    with pytest.raises(ValueError, match="not finite"):
        unpack(2, pack(states))


@given(st.integers(0, 5), st.binary(max_size=30))
def test_other_bytes_are_states_or_refused(count: int, packed: bytes) -> None:
    try:
        found = unpack(count, packed)
    except ValueError:
        return
    assert found.codes.shape == (count, (len(packed) - 4 * count) // count)
