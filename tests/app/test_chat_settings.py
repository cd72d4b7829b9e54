"""Settings of chats are set by name, and invalid ones are refused."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat_settings import (
    DOCS_MODES,
    DOCS_OFF,
    MAX_TOKENS,
    SETTING_RANGES,
    DocsSetting,
    format_sequences,
    parse_docs,
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


@given(
    st.sampled_from(DOCS_MODES), st.lists(st.text(min_size=1, max_size=8), max_size=4, unique=True)
)
def test_a_use_of_imports_is_shown_as_it_can_be_typed(mode: str, names: list[str]) -> None:
    docs = DocsSetting(mode, tuple(names) if mode != DOCS_OFF else ())
    assert parse_docs(str(docs)) == docs


@pytest.mark.parametrize(
    ("typed", "docs"),
    [
        ("Iterative", DocsSetting("iterative")),
        ('notes "my work"', DocsSetting("once", ("notes", "my work"))),
        ("knn notes once", DocsSetting("knn", ("notes", "once"))),
        ('"off"', DocsSetting("once", ("off",))),
    ],
)
def test_a_use_of_imports_is_a_mode_names_or_both(typed: str, docs: DocsSetting) -> None:
    assert parse_docs(typed) == docs


@pytest.mark.parametrize(
    ("typed", "said"), [('"notes', "between quotes"), ("off notes", "uses no imports")]
)
def test_an_invalid_use_of_imports_is_refused(typed: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_docs(typed)
