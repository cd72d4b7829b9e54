"""The unfiltered access path: all keys of the chosen texts, whatever they led to."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from datastores.dense.flat_keys import FlatKeys
from datastores.dense.index import DenseIndex
from datastores.dense.memory import InvertedLists
from datastores.dense.projection import Floats
from datastores.dense.worker import DenseWorker
from tests.datastores.dense.test_worker import SAMPLE, record, state_of, word, worker

__all__ = ["worker"]
START = 5
LENGTH = SAMPLE + 60
CHOSEN = ("notes", "book")


@pytest.fixture
def states(worker: DenseWorker) -> FlatKeys:
    """Of two texts with the same words; a third one, of a chat, is not chosen."""
    for owner in ("notes", "chat", "book"):
        record(worker, LENGTH, start=START, owner=owner)
    found = worker.ask(partial(DenseIndex.flat_keys, owners=CHOSEN))
    assert found is not None
    return found


def key_of(states: FlatKeys, position: int) -> Floats:
    return states.encode(state_of(position))[None]


def test_they_are_collected_again_only_after_a_change(
    states: FlatKeys, worker: DenseWorker
) -> None:
    collect = partial(DenseIndex.flat_keys, owners=CHOSEN)
    assert worker.ask(collect) is states
    record(worker, LENGTH + 5, start=START, owner="book")
    grown = worker.ask(collect)
    assert grown is not None
    assert len(grown) > len(states)


def test_later_answers_are_added_to_the_keys_collected_before(
    states: FlatKeys, worker: DenseWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect(owners: tuple[str, ...]) -> FlatKeys:
        found = worker.ask(partial(DenseIndex.flat_keys, owners=owners))
        assert found is not None
        return found

    def refuse(*_: object) -> None:
        raise AssertionError("collected again")

    with monkeypatch.context() as patch:
        patch.setattr(InvertedLists, "select", refuse)
        for owner in ("unchosen", "diary", "letters"):
            record(worker, LENGTH, start=START, owner=owner)
        grown = collect((*CHOSEN, "diary"))
    assert len(grown) == 3 * (LENGTH - START)
    # Texts that were there before are not among the later keys.
    everything = collect((*CHOSEN, "diary", "letters", "chat"))
    assert len(everything) == 5 * (LENGTH - START)
    fresh = collect((*CHOSEN, "diary"))
    keys = np.concatenate([key_of(fresh, position) for position in range(START, LENGTH, 7)])
    for one, other in zip(grown.search(keys, 9), fresh.search(keys, 9), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.distances.tolist() == other.distances.tolist()
        assert one.tokens.tolist() == other.tokens.tolist()


def test_only_chosen_texts_are_searched_and_all_of_them(states: FlatKeys) -> None:
    assert len(states) == 2 * (LENGTH - START)
    for position in (START, 70, LENGTH - 1):
        (found,) = states.search(key_of(states, position), 3)
        assert found.tokens[:2].tolist() == [word(position)] * 2
        assert found.distances[0] == found.distances[1] < 0.01
        assert found.rows[0] < found.rows[1], "ties by row"
        assert found.distances[2] > found.distances[1]


def test_distances_are_those_between_keys_of_unit_length(states: FlatKeys) -> None:
    projection = states._projection
    one, other = (projection.keys(state_of(position)[None])[0] for position in (9, 40))
    (found,) = states.search(key_of(states, 9), len(states))
    distance = found.distances[found.rows.tolist().index(40 - START)]
    assert distance == pytest.approx(float(((one - other) ** 2).sum()), abs=0.02)


def test_a_batch_a_single_key_and_a_subset_agree(states: FlatKeys) -> None:
    keys = np.concatenate([key_of(states, position) for position in range(20, 40)])
    batch = states.search(keys, 32)
    every = states.subset(np.arange(len(states)))
    for key, together, brute in zip(keys, batch, every.search(keys, 32), strict=True):
        (alone,) = states.search(key[None], 32)
        assert alone.rows.tolist() == together.rows.tolist()
        assert brute.distances.tolist() == together.distances.tolist()
    few = states.subset(np.array([3, 8, 200]))
    (found,) = few.search(keys[:1], 9)
    assert sorted(found.rows.tolist()) == [3, 8, 200]


def test_what_follows_stays_within_the_text(states: FlatKeys) -> None:
    last = LENGTH - START - 1
    assert states.following(np.array([0, last - 2, last, last + 1]), 3).tolist() == [
        *(1, 2, 3),
        *(last - 1, last),
        *(last + 2, last + 3, last + 4),
    ]
    assert states.following(np.array([len(states) - 1]), 3).size == 0


def test_what_is_forgotten_is_found_no_more_at_once(states: FlatKeys, worker: DenseWorker) -> None:
    worker.ask(partial(DenseIndex.forget, owner="notes"))
    (found,) = states.search(key_of(states, 70), len(states))
    assert len(found.tokens) == LENGTH - START
    (cached,) = states.subset(np.arange(len(states))).search(key_of(states, 70), len(states))
    assert cached.rows.tolist() == found.rows.tolist()
    again = worker.ask(partial(DenseIndex.flat_keys, owners=CHOSEN))
    assert again is not None
    assert len(again) == LENGTH - START


def test_without_chosen_texts_nothing_is_found(worker: DenseWorker) -> None:
    assert worker.ask(partial(DenseIndex.flat_keys, owners=CHOSEN)) is None, "nothing is fitted"
    record(worker, LENGTH, owner="chat")
    nothing = worker.ask(partial(DenseIndex.flat_keys, owners=CHOSEN))
    assert nothing is not None
    assert len(nothing) == 0
    (found,) = nothing.search(key_of(nothing, 7), 5)
    assert found.tokens.size == 0


def test_texts_that_the_owners_share_among_themselves_are_theirs(worker: DenseWorker) -> None:
    for owner in ("notes", "chat notes", "chat letters"):
        record(worker, LENGTH, start=START, owner=owner)
    for owners, count in ((("notes",), 1), (("notes", "chat"), 2), (("chat", "letters"), 1)):
        found = worker.ask(partial(DenseIndex.flat_keys, owners=owners))
        assert found is not None
        assert len(found) == count * (LENGTH - START)


def test_owners_contribute_the_weight_of_their_keys_without_what_was_deleted(
    worker: DenseWorker,
) -> None:
    for owner in ("notes", "chat notes", "book"):
        record(worker, LENGTH, start=START, owner=owner)
    states = worker.ask(partial(DenseIndex.flat_keys, owners=("notes", "chat", "book")))
    assert states is not None
    each, last = LENGTH - START, LENGTH - START - 1
    rows = np.array([0, 70, each, each + last, 2 * each + 30])
    ask = partial(
        DenseIndex.contributors,
        offsets=states.offsets(rows),
        weights=np.array([1.0, 2.0, 0.25, 0.5, 1.5]),
        limit=2,
    )
    first, second = worker.ask(ask)
    assert (first.owner, first.weight, second.owner, second.weight) == ("notes", 3.0, "book", 1.5)
    assert [list(words) for words in first.excerpts] == [
        [word(position) for position in range(70 + START - 6, 70 + START + 2)],
        [word(position) for position in range(START + 2)],
    ]
    worker.ask(partial(DenseIndex.forget, owner="notes"))
    assert [(one.owner, one.weight) for one in worker.ask(ask)] == [("book", 1.5)]


def test_the_surroundings_of_a_key_end_with_its_text(states: FlatKeys, worker: DenseWorker) -> None:
    last = LENGTH - START - 1
    offsets, weights = states.offsets(np.array([last])), np.ones(1)
    ask = partial(DenseIndex.contributors, offsets=offsets, weights=weights, limit=1)
    [found] = worker.ask(ask)
    assert [list(words) for words in found.excerpts] == [
        [word(position) for position in range(LENGTH - 7, LENGTH)]
    ]
