"""What keeps a dense index: where answers go, what waits for the disk, when a projection is due."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.dense.recorder import FIRST, GROWTH, Fitting
from datastores.dense.rows import Written
from datastores.dense.store import DenseStore
from datastores.dense.write_buffer import AnswerDocuments, Fresh, RemoteChanges, WriteBuffer
from datastores.errors import StoreError
from tests.datastores.dense.test_worker import open_store, said

words = st.lists(st.integers(0, 3), max_size=6)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DenseStore]:
    with closing(open_store(tmp_path)) as opened:
        yield opened


def fail(*_: object) -> None:
    raise StoreError("the disk is full")


def fresh(document: int, start: int, stop: int) -> Fresh:
    return Fresh(document, np.arange(start, stop), said(start, stop)[1])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from("abc"), words, words), max_size=8))
def test_documents_only_grow_and_hold_what_was_said(
    store: DenseStore, turns: list[tuple[str, list[int], list[int]]]
) -> None:
    answers, held = AnswerDocuments(store), dict[int, list[int]]()

    def write(part: Written | None) -> int:
        assert part is not None
        text = held.setdefault(part.document, [])
        assert part.start == len(text), "nothing that was written is written over"
        text.extend(part.tokens)
        return part.document

    for source, prompt, answer in turns:
        document = write(answers.begin(source, prompt))
        assert held[document] == prompt
        assert answers.observe(len(prompt) + 1, answer) is None, "something was missed"
        assert write(answers.observe(len(prompt), answer)) == document
        assert held[document] == prompt + answer


def test_nothing_is_recorded_in_a_document_that_is_gone(store: DenseStore) -> None:
    answers = AnswerDocuments(store)
    document = answers.begin("chat", [1, 2]).document
    answers.retain({document})
    assert answers.observe(2, [3]) is not None
    answers.retain(set())
    assert answers.observe(3, [4]) is None
    assert answers.begin("chat", [1, 2]).document != document


def test_forgetting_another_chat_leaves_the_answer_alone(store: DenseStore) -> None:
    answers = AnswerDocuments(store)
    answers.begin("other", [1])
    answers.begin("chat", [1])
    answers.forget("other")
    assert answers.observe(1, [2]) is not None
    answers.forget("chat")
    assert answers.observe(2, [3]) is None


def test_what_could_not_be_written_goes_on_waiting(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritten, document = WriteBuffer(), store.create_document("chat")
    unwritten.say(Written(document, 0, [5, 6]))
    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "write", fail)
        with pytest.raises(StoreError, match="full"):
            unwritten.write(store, [])
    unwritten.say(Written(document, 2, [7]))
    assert unwritten.ready([])
    unwritten.write(store, [])
    assert store.tokens(document) == (5, 6, 7)
    assert not unwritten.ready([])


def test_states_wait_for_a_projection(store: DenseStore) -> None:
    unwritten, fitting = WriteBuffer(), Fitting(store)
    document = store.create_document("chat")
    unwritten.say(Written(document, 0, said(0, FIRST + 1)[0]))
    unwritten.add(fresh(document, 1, FIRST + 1))
    unwritten.write(store, [])
    assert unwritten.documents() == {document}
    assert unwritten.positions(document).tolist() == list(range(1, FIRST + 1))
    assert not unwritten.positions(document + 1).size
    fitting.add(unwritten.states[0].states)
    fitted = fitting.better(None)
    assert fitted is not None
    store.generations.begin(*fitted)
    unwritten.write(store, store.generations.all())
    assert unwritten.documents() == set()
    assert store.counts(store.generations.all()[0]) == (FIRST, FIRST)


def test_a_projection_is_due_first_after_some_states_and_then_when_they_have_changed(
    store: DenseStore,
) -> None:
    fitting = Fitting(store)
    fitting.add(said(0, FIRST - 1)[1])
    assert fitting.better(None) is None
    fitting.add(said(FIRST - 1, FIRST)[1])
    fitted = fitting.better(None)
    assert fitted is not None
    assert fitted.states == FIRST
    store.generations.begin(*fitted)
    (serving,) = store.generations.all()
    fitting.add(said(0, (GROWTH - 1) * FIRST - 1, seed=1)[1])
    assert fitting.better(serving) is None, "too few for a judgement"
    fitting.add(said(0, 1, seed=1)[1])
    better = fitting.better(serving)
    assert better is not None
    assert better.states == GROWTH * FIRST
    assert fitting.better(serving) is None, "judged a moment ago"


def test_what_short_sessions_add_up_to_is_judged_once(store: DenseStore) -> None:
    first = Fitting(store)
    first.add(said(0, FIRST)[1])
    fitted = first.better(None)
    assert fitted is not None
    store.generations.begin(*fitted)
    first.keep()
    for session in range(1, GROWTH):
        fitting = Fitting(store)
        fitting.add(said(0, FIRST)[1])
        assert fitting.better(store.generations.all()[0]) is None, "more of the same"
        fitting.keep()
        judged = store.generations.all()[0].states
        assert judged == (GROWTH if session == GROWTH - 1 else 1) * FIRST
    changed = Fitting(store)
    for seed in range(1, GROWTH * GROWTH):
        changed.add(said(0, FIRST, seed=seed)[1])
    assert changed.better(store.generations.all()[0]) is not None


def test_states_count_although_the_disk_fails(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = Fitting(store)
    with monkeypatch.context() as patched:
        patched.setattr(DenseStore, "keep_moments", fail)
        with pytest.raises(StoreError, match="full"):
            fitting.add(said(0, FIRST + 1)[1])
    assert fitting.states == FIRST + 1
    fitting.keep()
    assert Fitting(store).states == FIRST + 1


def test_a_deletion_is_noticed_until_it_is_acted_upon(tmp_path: Path, store: DenseStore) -> None:
    document = store.create_document("chat")
    seen = RemoteChanges(store)
    assert not seen.deleted()
    with closing(open_store(tmp_path)) as elsewhere:
        elsewhere.forget("chat")
    assert seen.deleted()
    assert seen.deleted()
    assert document not in seen.documents()
    assert not seen.deleted()


def test_generations_that_begin_and_end_elsewhere_are_noticed(
    tmp_path: Path, store: DenseStore
) -> None:
    seen, fitting = RemoteChanges(store), Fitting(store)
    assert seen.serving is seen.newest is None
    fitting.add(said(0, FIRST)[1])
    fitted = fitting.better(None)
    assert fitted is not None

    def ids() -> list[int]:
        seen.look()
        return [generation.id for generation in seen.generations]

    with closing(open_store(tmp_path)) as elsewhere:
        elsewhere.generations.begin(*fitted)
        assert ids() == [1]
        assert not seen.rebuilding
        elsewhere.generations.begin(*fitted)
        assert ids() == [1, 2]
        assert seen.rebuilding
        elsewhere.generations.promote()
    assert ids() == [2]
    assert seen.serving is seen.newest is not None
