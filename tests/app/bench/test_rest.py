"""REST: its suffix array equals brute force, within texts; drafts follow the longest match."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.bench.baselines import SEPARATOR, RestDrafter, RestStore, write_rest
from datastores.crest.texts import TokenText
from datastores.errors import InputError
from tests.datastores.crest.reference import text_of, texts
from tests.engines.drafters.test_crest import TEXTS, asked, chain


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from((2, 4)))
def test_all_matches_are_found_with_what_follows(
    tmp_path: Path, docs: list[TokenText], context: list[int], width: int
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
    write_rest(tmp_path, [text_of(0, [token for n in range(50) for token in (9, n)])])
    store = RestStore(tmp_path)
    found = store.find([9], (0, len(store)))
    ids = store.continuations(found, 1, 1, 8).ravel() - 1
    assert len(ids) == 8
    assert ids[0] < 10 < 40 < ids[-1]


def test_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    docs = [text_of(0, [1, 2, 3]), text_of(1, [4])]
    for width in (2, 4):
        folder = tmp_path / str(width)
        folder.mkdir()
        write_rest(folder, docs, width)
        assert RestStore(folder).size() == 6 * (width + 4)


def test_ids_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="65535"):
        write_rest(tmp_path, [text_of(0, [65535])], 2)


def test_nothing_is_found_in_nothing(tmp_path: Path) -> None:
    write_rest(tmp_path, [])
    store = RestStore(tmp_path)
    assert store.find([1], (0, len(store))) == (0, 0)
    assert SEPARATOR == 0


@pytest.fixture
def rest(tmp_path: Path) -> RestDrafter:
    folder = tmp_path / "rest"
    folder.mkdir()
    write_rest(folder, TEXTS, 2)
    return RestDrafter(RestStore(folder))


def test_rest_drafts_the_most_common_prefixes(rest: RestDrafter) -> None:
    tree = rest.propose(asked(7, 2, 3), 64)
    assert chain(tree)[:3] == [9, 8, 2]
    root = tree.children()[0]
    assert tree.probabilities[root[9]] == pytest.approx(5 / 8)
    assert tree.probabilities[root[4]] == pytest.approx(3 / 8)
    assert max(tree.depths()) == 10


def test_rest_follows_the_longest_match_alone(rest: RestDrafter) -> None:
    assert set(rest.propose(asked(8, 2, 3), 1).tokens[1:]) == {9}
    tree = rest.propose(asked(1, 2, 3), 64)
    assert tree.probabilities[tree.children()[0][4]] == pytest.approx(3 / 4)


def test_rest_drafts_nothing_across_the_end(rest: RestDrafter) -> None:
    assert rest.propose(asked(1, 2, 3, 9), 64).drafted == 0


def test_rest_drafts_nothing_after_unknown_words(rest: RestDrafter) -> None:
    assert rest.propose(asked(70, 71), 16).drafted == 0


def test_without_the_extra_the_line_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydivsufsort", None)
    with pytest.raises(InputError, match=r"pydivsufsort is not installed: pip .*\[bench\]"):
        write_rest(tmp_path, [])
