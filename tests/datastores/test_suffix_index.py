"""The suffix index: it equals a search of every text, and follows the texts of the token cache."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.errors import StoreError
from datastores.suffix_reader import MAX_MATCH_TOKENS, SuffixMatch, SuffixReader
from datastores.token_cache import PLACE_BYTES, TokenCache, TokenizedText, TokenSpan
from datastores.winnowing import GRAM, MIN_SURE_TOKENS, winnow
from tests.datastores.dump import rows_of

PLENTY = 1 << 30


def text(number: int, *spans: Sequence[int], kind: int = 1) -> TokenizedText:
    made = tuple(TokenSpan(kind, np.array(span, np.uint32)) for span in spans)
    return TokenizedText(b"text %d" % number, made)


def words(seed: int, number: int = 60) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50_000, number)]


def fill(cache: TokenCache, texts: Sequence[TokenizedText], budget: int = PLENTY) -> None:
    cache.write(texts)
    while cache.index_due():
        cache.index_next(budget)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.db"


@pytest.fixture
def cache(path: Path) -> Iterator[TokenCache]:
    with closing(TokenCache.open(path)) as opened:
        yield opened


def lookup(path: Path, context: Sequence[int]) -> list[SuffixMatch]:
    with closing(SuffixReader(path)) as reader:
        return reader.lookup(context)


def brute_force(spans: Sequence[Sequence[int]], context: Sequence[int]) -> int:
    """The longest match that something follows, by comparing every position of every span."""
    longest = 0
    for span in spans:
        for end in range(len(span) - 1):
            length = 0
            while (
                length < min(end + 1, len(context), MAX_MATCH_TOKENS)
                and span[end - length] == context[-1 - length]
            ):
                length += 1
            longest = max(longest, length)
    return longest


SPANS = st.lists(st.lists(st.integers(0, 5), max_size=50), min_size=1, max_size=4)


@given(st.data(), st.lists(SPANS, min_size=1, max_size=4))
def test_a_lookup_equals_a_search_of_every_text(
    data: st.DataObject, texts: list[list[list[int]]]
) -> None:
    spans = [span for one in texts for span in one]
    source = data.draw(st.sampled_from(spans))
    end = data.draw(st.integers(0, len(source)))
    context = [*data.draw(st.lists(st.integers(0, 5), max_size=30)), *source[:end]]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("datastores.suffix_reader.MAX_PLACES", 10_000)
        path = Path(folder) / "tokens.db"
        with closing(TokenCache.open(path)) as cache:
            fill(cache, [text(number, *one) for number, one in enumerate(texts)])
        found = lookup(path, context)
    for match in found:
        joined = [token for span in texts[match.text - 1] for token in span]
        before, after = joined[: match.end + 1], joined[match.end + 1 :]
        assert before[-match.length :] == context[-match.length :]
        assert match.following == after[: len(match.following)]
        assert match.following
        assert match.ended
    expected = brute_force(spans, context)
    longest = max((match.length for match in found), default=0)
    assert longest <= expected
    if expected >= MIN_SURE_TOKENS:
        assert longest == expected


def test_nothing_follows_across_spans(path: Path, cache: TokenCache) -> None:
    one, other = words(1), words(2)
    fill(cache, [text(1, one, other)])
    (match,) = lookup(path, one[:40])
    assert (match.end, match.following, match.ended) == (39, one[40:], True)
    assert lookup(path, one) == []
    (second,) = lookup(path, other[:30])
    assert (second.end, second.following) == (len(one) + 29, other[30:])


def test_the_latest_texts_come_first(path: Path, cache: TokenCache) -> None:
    shared = words(1, 30)
    fill(cache, [text(number, [*shared, number]) for number in range(20)])
    assert [match.following for match in lookup(path, shared)] == [[n] for n in range(19, 11, -1)]


def test_a_long_text_is_read_on_piece_by_piece(path: Path, cache: TokenCache) -> None:
    whole = words(1, 1000)
    fill(cache, [text(1, whole, kind=3)])
    with closing(SuffixReader(path)) as reader:
        (match,) = reader.lookup(whole[:200])
        assert (match.kind, match.length) == (3, MAX_MATCH_TOKENS)
        read = 200
        while not match.ended:
            assert match.following == whole[read : read + len(match.following)]
            step = match.following[:50]
            assert match.advance(step)
            read += 50
            reader.read_on(match)
        assert match.length == MAX_MATCH_TOKENS + read - 200
        assert match.following == whole[read:]
        assert not match.advance([whole[read] + 1])
        assert not match.advance(whole[read:]), "nothing is left to draft"


def test_a_deleted_text_leaves_no_place_and_no_byte(path: Path, cache: TokenCache) -> None:
    kept, secret = text(1, words(1, 5000)), text(2, words(2, 700))
    fill(cache, [kept])
    never = rows_of(path)
    fill(cache, [secret])
    with closing(SuffixReader(path)) as reader:
        (match,) = reader.lookup(words(2, 40))
        cache.forget([secret.key])
        assert reader.lookup(words(2, 40)) == []
        reader.read_on(match)
        assert (match.following, match.ended) == ([], True)
        assert len(reader.lookup(words(1, 40))) == 1
    assert rows_of(path) == never
    grams, _ = winnow(secret.spans[0].tokens)
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert len(grams) > 100
    for gram in grams.tolist():
        assert gram.to_bytes(4, "big", signed=True) not in content


def test_places_wait_for_index_next(path: Path, cache: TokenCache, tmp_path: Path) -> None:
    texts = [text(number, words(number)) for number in range(9)]
    fill(cache, texts)
    assert not cache.index_due()
    cache.write(texts)
    assert not cache.index_due(), "nothing has changed"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("datastores.token_cache.INDEXED_TOKENS", 130)
        with closing(TokenCache.open(tmp_path / "parts.db")) as parts:
            fill(parts, texts)
    assert rows_of(tmp_path / "parts.db") == rows_of(path)


CHILD = """
import os, sys
from pathlib import Path
from datastores import token_cache
from tests.datastores.test_suffix_index import PLENTY, text, words

token_cache.INDEXED_TOKENS = 130
cache = token_cache.TokenCache.open(Path(sys.argv[1]))
cache.write([text(number, words(number)) for number in range(9)])
for _ in range(int(sys.argv[2])):
    cache.index_next(PLENTY)
with cache.store.writing() as db:
    token_cache._index_some(db)
    os._exit(9)
"""


@pytest.mark.parametrize("slices", [0, 1, 3])
def test_killed_and_resumed_is_undisturbed(
    path: Path, cache: TokenCache, tmp_path: Path, slices: int
) -> None:
    fill(cache, [text(number, words(number)) for number in range(9)])
    killed = tmp_path / "killed.db"
    command = [sys.executable, "-c", CHILD, str(killed), str(slices)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 9
    with closing(TokenCache.open(killed)) as resumed:
        assert resumed.index_due()
        while resumed.index_due():
            resumed.index_next(PLENTY)
    assert rows_of(killed) == rows_of(path)


def test_the_oldest_texts_lose_their_places_beyond_the_budget(
    path: Path, cache: TokenCache
) -> None:
    budget = 100 * PLACE_BYTES
    for number in range(40):
        fill(cache, [text(number, words(number))], budget)
    assert 50 < cache.store.rows("SELECT count(*) AS n FROM grams")[0]["n"] <= 100
    assert len(lookup(path, words(39, 40))) == 1
    assert lookup(path, words(0, 40)) == []
    assert len(cache.keys()) == 40
    cache.forget([b"text 39"])
    assert lookup(path, words(39, 40)) == []


def test_a_text_that_changed_is_indexed_again(path: Path, cache: TokenCache) -> None:
    fill(cache, [text(1, words(1))])
    fill(cache, [text(1, words(2))])
    assert lookup(path, words(1, 40)) == []
    assert len(lookup(path, words(2, 40))) == 1


def test_another_file_in_place_is_noticed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for number, file in ((1, path), (2, other)):
        with closing(TokenCache.open(file)) as cache:
            fill(cache, [text(1, words(number))])
    with closing(SuffixReader(path)) as reader:
        assert len(reader.lookup(words(1, 40))) == 1
        other.rename(path)
        reader.refresh()
        assert len(reader.lookup(words(2, 40))) == 1


@pytest.mark.parametrize(
    "ids", [b"\1\3\x3c\0\0\0abc", b"\1\0\x3c\0\0\0", b"\1", b"\1\xff\xff\0\0\0"]
)
def test_a_damaged_text_is_an_error(path: Path, cache: TokenCache, ids: bytes) -> None:
    fill(cache, [text(1, words(1))])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE texts SET ids = ?", (ids,))
    with pytest.raises(StoreError, match="damaged"):
        lookup(path, words(1, 40))


def test_a_file_without_an_index_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    with pytest.raises(StoreError):
        SuffixReader(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE texts (key BLOB)")
    with pytest.raises(StoreError):
        SuffixReader(path)


def test_a_short_context_has_no_match(path: Path, cache: TokenCache) -> None:
    fill(cache, [text(1, words(1))])
    assert lookup(path, words(1)[: GRAM - 1]) == []
