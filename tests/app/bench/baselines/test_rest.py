"""The baseline's suffix array: equal to brute force, within documents only."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bench.baselines.rest import SEPARATOR, RestStore, write_rest
from datastores.crest.counting import TokenDocument
from datastores.errors import InputError
from tests.datastores.crest.reference import document, documents


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(documents, st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from((2, 4)))
def test_all_matches_are_found_with_what_follows(
    tmp_path: Path, docs: list[TokenDocument], context: list[int], width: int
) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    write_rest(tmp_path, docs, width)
    store = RestStore(tmp_path)
    found = store.find(context, (0, len(store)))
    expected = []
    for one in docs:
        tokens = [int(token) for token in one.tokens]
        for at in range(len(tokens) - len(context) + 1):
            if tokens[at : at + len(context)] == context:
                following = tokens[at + len(context) :][:4]
                expected.append([token + 1 for token in following] + [0] * (4 - len(following)))
    if found[0] == found[1]:
        assert not expected
    else:
        assert store.continuations(found, len(context), 4, 99).tolist() == sorted(expected)


def test_of_many_matches_some_are_taken_evenly(tmp_path: Path) -> None:
    write_rest(tmp_path, [document(0, [token for n in range(50) for token in (9, n)])])
    store = RestStore(tmp_path)
    found = store.find([9], (0, len(store)))
    ids = store.continuations(found, 1, 1, 8).ravel() - 1
    assert len(ids) == 8
    assert ids[0] < 10 < 40 < ids[-1]


def test_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    docs = [document(0, [1, 2, 3]), document(1, [4])]
    for width in (2, 4):
        folder = tmp_path / str(width)
        folder.mkdir()
        write_rest(folder, docs, width)
        assert RestStore(folder).size() == 6 * (width + 4)


def test_ids_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="65535"):
        write_rest(tmp_path, [document(0, [65535])], 2)


def test_nothing_is_found_in_nothing(tmp_path: Path) -> None:
    write_rest(tmp_path, [])
    store = RestStore(tmp_path)
    assert store.find([1], (0, len(store))) == (0, 0)
    assert SEPARATOR == 0
