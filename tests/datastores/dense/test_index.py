"""The dense index: where answers go, what waits for the disk, when the projection is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.dense.index import AnswerTexts, DenseIndex, TextStates, WriteBuffer
from datastores.dense.memory import DenseMemory
from datastores.dense.store import DenseStore, TextTokens
from datastores.errors import StoreError
from tests.datastores.dense.test_worker import SAMPLE, VOCABULARY, find, open_store, said

words = st.lists(st.integers(0, 3), max_size=6)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DenseStore]:
    with closing(open_store(tmp_path)) as opened:
        yield opened


def fail(*_: object) -> None:
    raise StoreError("the disk is full")


def states(text: int, start: int, stop: int) -> TextStates:
    return TextStates(text, np.arange(start, stop), said(start, stop)[1])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from("abc"), words, words), max_size=8))
def test_texts_only_grow_and_hold_what_was_said(
    store: DenseStore, turns: list[tuple[str, list[int], list[int]]]
) -> None:
    answers, held = AnswerTexts(store), dict[int, list[int]]()

    def write(part: TextTokens | None) -> int:
        assert part is not None
        text = held.setdefault(part.text, [])
        assert part.start == len(text), "nothing that was written is written over"
        text.extend(part.tokens)
        return part.text

    for owner, prompt, answer in turns:
        text = write(answers.begin(owner, prompt))
        assert held[text] == prompt
        assert answers.observe(len(prompt) + 1, answer) is None, "something was missed"
        assert write(answers.observe(len(prompt), answer)) == text
        assert held[text] == prompt + answer


def test_nothing_is_recorded_in_a_text_that_is_gone(store: DenseStore) -> None:
    answers = AnswerTexts(store)
    text = answers.begin("chat", [1, 2]).text
    answers.retain({text})
    assert answers.observe(2, [3]) is not None
    answers.retain(set())
    assert answers.observe(3, [4]) is None
    assert answers.begin("chat", [1, 2]).text != text


def test_forgetting_another_chat_leaves_the_answer_alone(store: DenseStore) -> None:
    answers = AnswerTexts(store)
    answers.begin("other", [1])
    answers.begin("chat", [1])
    answers.forget("other")
    assert answers.observe(1, [2]) is not None
    answers.forget("chat")
    assert answers.observe(2, [3]) is None


def test_what_could_not_be_written_goes_on_waiting(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, text = WriteBuffer(), store.create_text("chat")
    buffer.add_tokens(TextTokens(text, 0, [5, 6]))
    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "write", fail)
        with pytest.raises(StoreError, match="full"):
            buffer.write(store)
    buffer.add_tokens(TextTokens(text, 2, [7]))
    assert buffer
    buffer.write(store)
    assert store.tokens(text) == (5, 6, 7)
    assert not buffer


def index_of(store: DenseStore) -> DenseIndex:
    """An index over `store`, with one text longer than the sample."""
    index = DenseIndex(store, DenseMemory(VOCABULARY))
    index.add_text("text", said(0, SAMPLE + 10)[0])
    return index


def test_states_wait_for_the_projection(store: DenseStore) -> None:
    index = index_of(store)
    index.add_states(states(1, 1, SAMPLE))
    assert index.status().held == SAMPLE - 1
    assert index.missing_keys(1).positions.tolist() == list(range(SAMPLE, SAMPLE + 10))
    assert index.backlog() == [1]
    assert store.projection() is None
    index.add_states(states(1, SAMPLE, SAMPLE + 1))
    status = index.status()
    assert (status.held, status.keys, status.positions) == (0, SAMPLE, SAMPLE + 9)
    assert index.missing_keys(1).positions.tolist() == list(range(SAMPLE + 1, SAMPLE + 10))


def test_the_projection_is_fitted_once(store: DenseStore) -> None:
    index = index_of(store)
    index.add_states(states(1, 1, SAMPLE + 1))
    first = store.projection()
    index.add_text("other", said(0, 9 * SAMPLE, seed=1)[0])
    positions, other = np.arange(1, 9 * SAMPLE), said(1, 9 * SAMPLE, seed=1)[1]
    index.add_states(TextStates(2, positions, other))
    again = store.projection()
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(first.weights, again.weights)
    assert index.status().keys == SAMPLE + 9 * SAMPLE - 1


def test_a_projection_that_could_not_be_stored_is_fitted_again(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(store)
    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "keep_projection", fail)
        with pytest.raises(StoreError, match="full"):
            index.add_states(states(1, 1, SAMPLE + 1))
    assert index.status().held == SAMPLE
    index.add_states(states(1, SAMPLE + 1, SAMPLE + 2))
    assert index.status().keys == SAMPLE + 1


def test_states_that_wait_are_forgotten_with_their_owner(store: DenseStore) -> None:
    index = index_of(store)
    index.add_text("other", said(0, 50)[0])
    index.add_states(states(1, 1, 100))
    index.add_states(states(2, 1, 50))
    index.forget("text")
    assert index.status().held == 49


def test_a_deletion_elsewhere_is_noticed(tmp_path: Path, store: DenseStore) -> None:
    index = index_of(store)
    index.add_states(states(1, 1, SAMPLE + 1))
    assert find(index._memory, 50).similarities[0] > 0.99
    with closing(open_store(tmp_path)) as elsewhere:
        elsewhere.forget("text")
    assert find(index._memory, 50).similarities[0] > 0.99
    index.leave()
    assert find(index._memory, 50).similarities == []
    assert index._memory.texts() == set()


def test_a_projection_fitted_elsewhere_is_used(tmp_path: Path, store: DenseStore) -> None:
    index = index_of(store)
    index.add_states(states(1, 1, 100))
    with closing(open_store(tmp_path)) as elsewhere:
        other = index_of(elsewhere)
        other.add_states(states(2, 1, SAMPLE + 1))
        other.flush()
    index.leave()
    assert (index.status().held, index.status().keys) == (0, SAMPLE + 99)
    assert find(index._memory, 50).similarities[0] > 0.99
