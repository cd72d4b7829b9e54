"""Returning to a parked text equals reading it again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.draft_tree import DraftTree, root_only
from engines.llama.model import LlamaModel, load
from engines.llama.parked_texts import ParkedText, ParkedTexts
from engines.llama.target import LlamaTarget
from engines.target import ParkingTarget
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.llama.test_target import near, read, trees

START = [1, *range(300, 320)]
CONTEXT = 512


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    return load(EMBEDDED, threads=THREADS, gpu_layers=0, context_length=CONTEXT)


@pytest.fixture
def target(model: LlamaModel) -> Iterator[LlamaTarget]:
    model.target.rewind(0)
    yield model.target
    model.target.drop_parked()


def text(number: int, answer: int) -> list[int]:
    """A passage of its own between a common start and a common end."""
    return [*START, *range(1000 + 50 * number, 1040 + 50 * number), *range(400, 410 + answer)]


def test_returning_to_a_text_evaluates_only_what_is_new(target: LlamaTarget) -> None:
    assert isinstance(target, ParkingTarget)
    list(target.prefill(text(1, 5)))
    target.park()
    list(target.prefill(text(2, 5)))
    target.park()
    passes = target._forward.count
    list(target.prefill(text(1, 9)))
    assert target._forward.count == passes + 1, "four new tokens are one pass"
    assert list(target.tokens) == text(1, 9)
    returned = target.last_row.logits[0].copy()
    assert near(returned, read(target, text(1, 9)))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moves=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), trees()), max_size=14))
def test_any_order_of_texts_with_trees_between(
    target: LlamaTarget, moves: list[tuple[int, int, DraftTree]]
) -> None:
    target.drop_parked()
    target.rewind(0)
    for number, answer, tree in moves:
        list(target.prefill(text(number, answer)))
        target.verify(tree)
        target.commit([0])
        assert list(target.tokens) == [*text(number, answer), tree.tokens[0]]
        target.verify(root_only(7))
        target.commit([0])
        target.park()
    list(target.prefill(text(3, 12)))
    logits = target.last_row.logits[0].copy()
    target.drop_parked()
    assert near(logits, read(target, text(3, 12)))


def test_the_least_recently_used_text_makes_room() -> None:
    parked = ParkedTexts(max_bytes=300)
    for number in range(3):
        parked.add(ParkedText(text(number, 5), np.zeros(100, np.uint8)))
    oldest, shared = parked.nearest(text(0, 9))
    assert shared == len(text(0, 5))
    parked.use(oldest)
    parked.add(ParkedText(text(3, 5), np.zeros(100, np.uint8)))
    assert parked.bytes == 300
    assert [parked.holds(text(number, 5)) for number in range(4)] == [True, False, True, True]
    parked.add(ParkedText(text(4, 5), np.zeros(301, np.uint8)))
    assert not len(parked), "it alone is too large"


def test_parked_texts_leave_every_cell_to_the_cached_one(target: LlamaTarget) -> None:
    for number in range(8):
        list(target.prefill(text(number, 40)))
        target.park()
    assert len(target._parked) == 8
    longest = list(range(300, 300 + CONTEXT))
    list(target.prefill(longest))
    assert list(target.tokens) == longest
    list(target.prefill(text(0, 40)))
    assert list(target.tokens) == text(0, 40)


def test_a_text_that_was_continued_is_not_kept_twice(target: LlamaTarget) -> None:
    for answer in range(4, 9):
        list(target.prefill(text(1, answer)))
        target.park()
    assert len(target._parked) == 1


def test_returning_changes_no_bit_in_exact_mode() -> None:
    exact = load(EMBEDDED, threads=THREADS, context_length=CONTEXT, exact=True).target
    expected = read(exact, text(1, 9))
    list(exact.prefill(text(1, 5)))
    exact.park()
    list(exact.prefill(text(2, 5)))
    list(exact.prefill(text(1, 9)))
    assert np.array_equal(exact.last_row.logits[0], expected)
