"""Token ids: through bytes and back, and how far two texts begin alike."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from datastores.tokens import common_prefix, pack, unpack

ids = st.lists(st.integers(0, 2**32 - 1), max_size=40)
few = st.lists(st.integers(0, 1), max_size=12)


@given(ids)
def test_bytes_give_the_tokens_back(tokens: list[int]) -> None:
    assert unpack(pack(tokens)) == tuple(tokens)


@given(few, few, few, st.integers(1, 5), st.sampled_from([list, tuple]))
def test_a_common_prefix_is_common_and_the_longest(
    shared: list[int], one: list[int], other: list[int], stretch: int, kind: type
) -> None:
    one, other = shared + one, shared + other
    with patch("datastores.tokens.COMPARED_TOKENS", stretch):
        length = common_prefix(one, kind(other))
    assert length >= len(shared)
    assert one[:length] == other[:length]
    assert length == min(len(one), len(other)) or one[length] != other[length]
