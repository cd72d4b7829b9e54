"""Blobs with a checksum are returned whole, to their owner alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.storage.integrity import verify_checksum, with_checksum


@given(st.text(), st.binary())
def test_a_body_is_returned_as_it_was(owner: str, body: bytes) -> None:
    assert verify_checksum(owner, with_checksum(owner, body)) == body


@given(st.binary(min_size=1), st.data())
def test_not_a_bit_may_differ(body: bytes, data: st.DataObject) -> None:
    blob = bytearray(with_checksum("model", body))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match="wrong checksum"):
        verify_checksum("model", bytes(blob))


@given(st.binary(), st.integers(0, 40))
def test_another_owner_and_less_are_refused(body: bytes, kept: int) -> None:
    blob = with_checksum("model", body)
    with pytest.raises(ValueError, match="wrong checksum"):
        verify_checksum("other", blob)
    if kept < len(blob):
        with pytest.raises(ValueError, match="wrong checksum"):
            verify_checksum("model", blob[:kept])
