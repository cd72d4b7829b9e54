"""Counting strings: equal to brute force, within texts only, in any block size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastores.crest import counting
from datastores.crest.counting import Level, parts_of, tree_sizes
from datastores.crest.texts import TokenText, joined
from tests.datastores.crest.reference import Path, counted, strings, text_of, texts

DEPTH = 5


def spelled(levels: list[Level]) -> list[list[Path]]:
    """The strings of every level, spelled out by their prefixes."""
    found: list[list[Path]] = [[()]]
    for level in levels:
        pairs = zip(level.prefixes.tolist(), level.tokens.tolist(), strict=True)
        found.append([(*found[-1][prefix], token) for prefix, token in pairs])
    return found[1:]


def same_table(one: list[Level], other: list[Level]) -> bool:
    return all(
        getattr(level, name).tolist() == getattr(as_well, name).tolist()
        for level, as_well in zip(one, other, strict=True)
        for name in ("counts", "tokens", "prefixes", "suffix_counts", "kinds")
    )


@pytest.fixture(params=[(1 << 20, 1 << 22), (16, 24), (5, 3)])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions read and sorted at a time: all of them, or a few, less than a string has too."""
    monkeypatch.setattr(counting, "SLICE_POSITIONS", request.param[0])
    monkeypatch.setattr(counting, "BLOCK_POSITIONS", request.param[1])


any_blocks = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.usefixtures("blocks")
@any_blocks
@given(texts, st.integers(1, 3))
def test_counts_are_those_of_brute_force(docs: list[TokenText], least: int) -> None:
    levels = counted(docs, DEPTH, least).levels
    for length, (level, names) in enumerate(zip(levels, spelled(levels), strict=True), 1):
        expected = {path: n for path, n in strings(docs, length).items() if n >= least}
        assert dict(zip(names, level.counts.tolist(), strict=True)) == expected
        assert names == sorted(names)


@pytest.mark.usefixtures("blocks")
@any_blocks
@given(texts, st.integers(1, 3))
def test_suffix_counts_are_those_of_strings_without_their_first_token(
    docs: list[TokenText], least: int
) -> None:
    levels = counted(docs, DEPTH, least).levels
    for length, (level, names) in enumerate(zip(levels, spelled(levels), strict=True), 1):
        counts = strings(docs, length - 1) if length > 1 else Counter[Path]()
        assert level.suffix_counts.tolist() == [counts[path[1:]] for path in names]


@pytest.mark.usefixtures("blocks")
@any_blocks
@given(texts)
def test_the_most_frequent_kind_is_that_of_brute_force(docs: list[TokenText]) -> None:
    levels = counted(docs, DEPTH, tagged=2).levels
    for length, names in enumerate(spelled(levels)[:2], 1):
        by_kind = {kind: strings([d for d in docs if d.kind == kind], length) for kind in range(8)}
        expected = [max(by_kind, key=lambda kind: by_kind[kind][path]) for path in names]
        assert levels[length - 1].kinds.tolist() == expected
    assert not any(len(level.kinds) for level in levels[2:])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(("total", "of_one_token"), [(60, 1000), (1000, 12)])
def test_of_too_many_strings_those_that_occur_more_often_are_counted(
    monkeypatch: pytest.MonkeyPatch, total: int, of_one_token: int
) -> None:
    tokens = np.random.default_rng(5).zipf(1.6, 400).tolist()
    docs = [text_of(0, tokens[:200]), text_of(1, tokens[200:])]
    monkeypatch.setattr(counting, "MAX_STRINGS", total)
    monkeypatch.setattr(counting, "MAX_TREE_STRINGS", of_one_token)
    found = counted(docs, DEPTH, tagged=2)
    assert sum(map(len, found.levels)) <= total
    assert max(tree_sizes(found.levels)) <= of_one_token
    monkeypatch.undo()
    assert found.least > 1
    assert same_table(found.levels, counted(docs, DEPTH, found.least, tagged=2).levels)


def test_what_exceeds_the_memory_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(5).integers(0, 9, 3000).tolist()
    docs = [text_of(at, tokens[at : at + 500]) for at in range(0, 3000, 500)]
    whole = counted(docs, DEPTH, 2)
    monkeypatch.setattr("datastores.crest.columns.SPOOLED_BYTES", 64)
    assert same_table(whole.levels, counted(docs, DEPTH, 2).levels)


@given(texts, st.integers(1, 40))
def test_parts_have_each_string_once_as_if_alone(docs: list[TokenText], size: int) -> None:
    levels = counted(docs, DEPTH, tagged=2).levels
    parts = list(parts_of(levels, size))
    for part in parts:
        alone = spelled(part)
        assert sum(map(len, alone)) <= size or len(alone[0]) == 1
    for number, names in enumerate(spelled(levels)):
        assert [path for part in parts for path in spelled(part)[number]] == names
        counts = [count for part in parts for count in part[number].counts.tolist()]
        assert counts == levels[number].counts.tolist()


@given(texts)
def test_distances_to_the_end_are_known(docs: list[TokenText]) -> None:
    expected = [left for one in docs for left in range(len(one.tokens), 0, -1)]
    with joined(docs) as text:
        assert text.remaining.read(0, len(text)).tolist() == expected


def test_large_distances_to_the_end_are_cut() -> None:
    with joined([text_of(0, range(300))]) as text:
        assert text.remaining.read(40, 48).tolist() == [255] * 6 + [254, 253]


def test_the_most_frequent_kind_is_known() -> None:
    docs = [text_of(0, [1, 2], kind=3), text_of(1, [1, 2, 2], kind=1), text_of(2, [1], kind=3)]
    level = counted(docs, 2, tagged=1).levels[0]
    assert dict(zip(level.tokens.tolist(), level.kinds.tolist(), strict=True)) == {1: 3, 2: 1}


def test_large_ids_stay_whole() -> None:
    docs = [text_of(0, [2**32 - 1, 0, 2**32 - 1, 0])]
    level = counted(docs, 2).levels[1]
    assert level.tokens.tolist() == [2**32 - 1, 0]
    assert level.counts.tolist() == [1, 2]
