"""Settings of chats are set by name, and invalid ones are refused."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat_settings import (
    MAX_TOKENS,
    SETTING_RANGES,
    format_sequences,
    parse_sequences,
    with_overrides,
)
from datastores.errors import InputError
from engines.sampler import Sampling


def test_every_setting_has_a_range_that_holds_its_default() -> None:
    assert set(SETTING_RANGES) == {MAX_TOKENS, *(entry.name for entry in fields(Sampling))}
    assert with_overrides(Sampling(), {}) == Sampling()


def test_chosen_settings_override_the_base() -> None:
    base = Sampling(top_k=7)
    assert with_overrides(base, {"temperature": 1, "seed": 3}) == Sampling(1.0, top_k=7, seed=3)
    assert type(with_overrides(base, {"temperature": 1}).temperature) is float


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"warmth": 1}, "unknown setting 'warmth'"),
        ({"temperature": "hot"}, "temperature must be a number, not 'hot'"),
        ({"top_k": 2.5}, "top_k must be a number, not 2.5"),
        ({"top_k": True}, "top_k must be a number, not True"),
        ({"temperature": -0.1}, "temperature must be from 0 to 100, not -0.1"),
        ({"temperature": math.nan}, "not nan"),
        ({"temperature": math.inf}, "not inf"),
        ({"top_p": 1.5}, "top_p must be from 0 to 1"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"seed": -2}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"top_k": None}, "top_k"),
    ],
)
def test_invalid_settings_are_named(chosen: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=f"chat 3: .*{complaint}"):
        with_overrides(Sampling(), chosen, "chat 3")


@given(st.lists(st.text(min_size=1, max_size=8), max_size=5))
def test_stop_sequences_are_shown_as_they_can_be_typed(sequences: list[str]) -> None:
    assert parse_sequences(format_sequences(sequences)) == sequences


@pytest.mark.parametrize("typed", ['"open', '"" x', 'a"b', "x" * 201])
def test_invalid_stop_sequences_are_refused(typed: str) -> None:
    with pytest.raises(InputError):
        parse_sequences(typed)
