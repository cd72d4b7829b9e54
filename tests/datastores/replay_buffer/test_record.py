"""Records: nothing is lost in their bytes, and nothing that a target cannot have said passes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.replay_buffer.record import (
    MIN_LOGPROB,
    TOP,
    ReplayRecord,
    pack,
    question_key,
    require_valid,
    top_of,
    unpack,
)
from tests.datastores.replay_buffer.records import VOCABULARY, record


def same(one: ReplayRecord, other: ReplayRecord) -> bool:
    """Whether all but ids and states agree, types included."""
    for field in fields(one):
        if field.name == "states":
            continue
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray):
            if mine.dtype != theirs.dtype or not np.array_equal(mine, theirs):
                return False
        elif field.name != "id" and mine != theirs:
            return False
    return True


@given(st.integers(0, 99), st.integers(2, 200), st.data())
def test_what_is_packed_is_unpacked(seed: int, length: int, data: st.DataObject) -> None:
    length = max(length, 4)
    rows = data.draw(st.integers(0, length - length // 4))
    given_record = record(seed, length=length, rows=rows, chat=seed)
    require_valid(given_record, VOCABULARY)
    unpacked = unpack(7, pack(given_record))
    assert unpacked.id == 7
    assert same(unpacked, given_record)


@given(st.binary(max_size=400))
def test_other_bytes_are_refused_or_found_invalid(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        require_valid(unpack(1, packed), VOCABULARY)


@given(st.integers(0, 99), st.integers(2, 400), st.floats(0.1, 30.0))
def test_the_top_is_that_of_a_sort_and_the_rest_what_is_left(
    seed: int, size: int, sharpness: float
) -> None:
    logits = np.random.default_rng(seed).normal(0, sharpness, (3, size)).astype(np.float32)
    tokens, logprobs, rest = top_of(logits)
    kept = min(TOP, size)
    shares = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for row in range(3):
        order = np.argsort(-logits[row], kind="stable")[:kept]
        np.testing.assert_array_equal(logits[row][tokens[row]], logits[row][order])
        expected = np.maximum(np.log(shares[row][tokens[row]]), MIN_LOGPROB)
        np.testing.assert_allclose(logprobs[row], expected, rtol=1e-3, atol=1e-6)
        left = np.delete(shares[row], tokens[row]).sum()
        expected_rest = max(np.log(left), MIN_LOGPROB) if left else MIN_LOGPROB
        np.testing.assert_allclose(rest[row], expected_rest, rtol=2e-3, atol=1e-3)


def _changed(field: str, index: Any, value: object) -> ReplayRecord:
    sound = record()
    column = getattr(sound, field).copy()
    column[index] = value
    return replace(sound, **{field: column})


@pytest.mark.parametrize(
    ("poisoned", "reason"),
    [
        (_changed("tokens", 3, VOCABULARY), "token 300 is not in the vocabulary"),
        (_changed("tokens", 0, -1), "token -1"),
        (_changed("top_tokens", (2, 5), 2**31 - 1), "token 2147483647"),
        (_changed("top_tokens", (2, slice(0, 2)), 4), "twice"),
        (_changed("top_logprobs", (1, 1), np.nan), "not a number"),
        (_changed("top_logprobs", (1, 1), 0.5), "not a number"),
        (_changed("top_logprobs", (1, 1), -np.inf), "not a number"),
        (_changed("rest_logprob", 0, np.nan), "not a number"),
        (_changed("top_logprobs", (3, slice(0, 3)), -0.01), "sum to"),
        (_changed("rest_logprob", 4, 0.0), "sum to"),
        (_changed("top_logprobs", 5, -30.0), "sum to"),
        (_changed("positions", -1, 40), "position 40 is not in its answer"),
        (_changed("positions", 0, 1), "not in its answer"),
        (_changed("positions", 1, 39), "do not ascend"),
        (_changed("tokens", slice(10, None), 0), "of 12 tokens are among the likeliest"),
        (replace(record(), prompt_length=0), "cannot be its prompt"),
        (replace(record(), prompt_length=40), "cannot be its prompt"),
        (replace(record(), created=float("nan")), "created at nan"),
        (replace(record(), rest_logprob=np.zeros(3, np.float16)), "no rest"),
        (replace(record(), top_tokens=np.zeros((12, 3), np.int32)), "keeps"),
    ],
)
def test_what_no_target_can_have_said_is_refused_by_reason(
    poisoned: ReplayRecord, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        require_valid(poisoned, VOCABULARY)


def test_a_question_asked_again_has_the_same_key() -> None:
    key = question_key("How do I  list files?")
    assert key == question_key("how do i list files")
    assert key != question_key("how do i list folders")
    assert question_key("?!") != question_key("...")
    assert question_key("\ud800") == question_key("\ud800"), "half a character is no error"
