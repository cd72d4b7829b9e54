"""Counting strings: equal to brute force, within documents only, in any block size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.crest import counting
from datastores.crest.counting import Level, TokenDocument, count_strings, join
from tests.datastores.crest.reference import Path, document, documents, strings

DEPTH = 5


def spelled(levels: list[Level]) -> list[list[Path]]:
    """The strings of every level, spelled out by their prefixes."""
    found: list[list[Path]] = [[()]]
    for level in levels:
        pairs = zip(level.prefixes.tolist(), level.tokens.tolist(), strict=True)
        found.append([(*found[-1][prefix], token) for prefix, token in pairs])
    return found[1:]


@given(documents, st.integers(1, 3))
def test_counts_are_those_of_brute_force(docs: list[TokenDocument], least: int) -> None:
    levels = count_strings(join(docs), DEPTH, least, threads=1)
    for length, (level, names) in enumerate(zip(levels, spelled(levels), strict=True), 1):
        expected = {path: n for path, n in strings(docs, length).items() if n >= least}
        assert dict(zip(names, level.counts.tolist(), strict=True)) == expected
        assert names == sorted(names)


@given(documents)
def test_suffixes_are_the_strings_without_their_first_token(docs: list[TokenDocument]) -> None:
    levels = count_strings(join(docs), DEPTH, threads=1)
    names = spelled(levels)
    for above, level, found in zip(names, levels[1:], names[1:], strict=False):
        assert [above[row] for row in level.suffixes.tolist()] == [path[1:] for path in found]


@given(documents)
def test_places_are_where_the_strings_stand(docs: list[TokenDocument]) -> None:
    text = join(docs)
    levels = count_strings(text, DEPTH, threads=1)
    for length, (level, names) in enumerate(zip(levels, spelled(levels), strict=True), 1):
        stand = [tuple(text.tokens[at : at + length].tolist()) for at in level.positions.tolist()]
        assert stand == names


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = np.random.default_rng(5).integers(0, 9, 3000).tolist()
    docs = [
        document(number, tokens[at : at + 500]) for number, at in enumerate(range(0, 3000, 500))
    ]
    whole = count_strings(join(docs), DEPTH, 2)
    monkeypatch.setattr(counting, "BLOCK_POSITIONS", 100)
    parts = count_strings(join(docs), DEPTH, 2)
    for one, other in zip(whole, parts, strict=True):
        for name in ("counts", "tokens", "prefixes", "suffixes"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_the_most_frequent_kind_is_known() -> None:
    docs = [document(0, [1, 2], kind=3), document(1, [1, 2, 2], kind=1), document(2, [1], kind=3)]
    levels = count_strings(join(docs), 2, tagged=1)
    assert dict(zip(levels[0].tokens.tolist(), levels[0].kinds.tolist(), strict=True)) == {
        1: 3,
        2: 1,
    }


def test_large_ids_stay_whole() -> None:
    docs = [document(0, [2**32 - 1, 0, 2**32 - 1, 0])]
    level = count_strings(join(docs), 2)[1]
    assert level.tokens.tolist() == [2**32 - 1, 0]
    assert level.counts.tolist() == [1, 2]
