"""Suffix drafting, over a real index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datastores.suffix_reader import SuffixMatch, SuffixReader
from datastores.token_cache import TokenCache, TokenizedText, TokenSpan
from datastores.winnowing import WINDOW
from engines.draft_tree import CHATS, CODE, DraftTree
from engines.drafter_simulation import Recorded, simulate
from engines.drafters.suffix import LONGEST, SURE_MATCH_TOKENS, SuffixDrafter
from engines.step import Context

STATE = np.zeros(0, np.float32)


def words(seed: int, number: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50_000, number)]


SHARED = words(1, 40)
ONE, OTHER = words(2, 30), words(3, 30)
ANSWER = words(4, 400)
TEXTS = [([*SHARED, *ONE], 1), ([*SHARED[20:], *OTHER], 3), (ANSWER, 1)]


class CountedReader(SuffixReader):
    """Counts its lookups."""

    lookups = 0

    def lookup(self, context: Sequence[int], new: int = WINDOW) -> list[SuffixMatch]:
        self.lookups += 1
        return super().lookup(context, new)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.db"
    with closing(TokenCache.open(path)) as cache:
        cache.write(
            [
                TokenizedText(b"%d" % number, (TokenSpan(kind, np.array(tokens, np.uint32)),))
                for number, (tokens, kind) in enumerate(TEXTS)
            ]
        )
        cache.index_next(1 << 20)
    return path


@pytest.fixture
def reader(path: Path) -> Iterator[CountedReader]:
    with closing(CountedReader(path)) as opened:
        yield opened


def begun(reader: SuffixReader, tokens: list[int]) -> tuple[SuffixDrafter, Context]:
    drafter, context = SuffixDrafter(reader), Context(tokens, STATE, 0.0)
    drafter.begin(context)
    return drafter, context


def paths(tree: DraftTree) -> list[list[int]]:
    """The tokens from the root to every leaf."""
    children = tree.children()
    found = []
    for row in range(1, len(tree)):
        if not children[row]:
            path, at = [], row
            while at:
                path.append(tree.tokens[at])
                at = tree.parents[at]
            found.append(path[::-1])
    return found


def test_the_place_of_the_longest_match_leads(reader: CountedReader) -> None:
    drafter, context = begun(reader, list(SHARED))
    tree = drafter.propose(context, 40)
    one, other = (tree.children()[0][token] for token in (ONE[0], OTHER[0]))
    assert tree.probabilities[one] > tree.probabilities[other]
    assert (tree.origins[one], tree.origins[other]) == (CHATS, CODE)
    assert (tree.supports[one], tree.supports[other]) == (32.0, 20.0)
    assert tree.drafted <= 40


def test_a_much_shorter_match_does_not_count(reader: CountedReader) -> None:
    drafter, context = begun(reader, [*SHARED, *ONE[:10]])
    assert paths(drafter.propose(context, 64)) == [ONE[10:]]


def test_an_old_answer_is_copied_at_twelve_tokens_a_step(reader: CountedReader) -> None:
    drafter = SuffixDrafter(reader)
    copied = Recorded(tuple(words(9, 20)), tuple(ANSWER[:300]))
    counts, _ = simulate(drafter, [copied], [16])
    assert counts[16].tokens_per_step >= 12.0


def test_a_match_that_the_text_follows_is_not_looked_up_again(reader: CountedReader) -> None:
    drafter, context = begun(reader, ANSWER[:SURE_MATCH_TOKENS])
    for _ in range(100):
        tree = drafter.propose(context, 8)
        assert tree.tokens[1:] == ANSWER[len(context.tokens) :][:8]
        context.tokens.append(tree.tokens[1])
    assert reader.lookups == 1
    context.tokens.append(50_001)
    assert drafter.propose(context, 8).drafted == 0
    assert reader.lookups == 2


def test_a_long_draft_ends_at_the_longest(reader: CountedReader) -> None:
    drafter, context = begun(reader, ANSWER[:100])
    for start in range(100, 260, 40):
        tree = drafter.propose(context, 200)
        assert tree.tokens[1:] == ANSWER[start : start + LONGEST]
        context.tokens += ANSWER[start : start + 40]


def test_the_end_of_a_text_is_drafted_and_nothing_after(reader: CountedReader) -> None:
    drafter, context = begun(reader, ANSWER[:-3])
    assert drafter.propose(context, 16).tokens[1:] == ANSWER[-3:]
    context.tokens += ANSWER[-3:]
    assert drafter.propose(context, 16).drafted == 0


def test_a_continued_draft_leaves_the_answer_alone(reader: CountedReader) -> None:
    drafter, context = begun(reader, ANSWER[:50])
    drafter.propose(context, 8)
    drafted = replace(context, tokens=[*context.tokens, *SHARED])
    assert ONE[0] in drafter.propose(drafted, 8).tokens
    context.tokens.append(ANSWER[50])
    assert drafter.propose(context, 8).tokens[1:] == ANSWER[51:59]


def test_dear_rows_are_not_proposed(reader: CountedReader) -> None:
    drafter, context = begun(reader, ANSWER[:20])
    cheap = drafter.propose(context, 64).drafted
    context.row_price = 0.9
    assert 0 < drafter.propose(context, 64).drafted < cheap


def test_a_damaged_index_ends_no_answer(reader: CountedReader, path: Path) -> None:
    drafter, context = begun(reader, list(SHARED))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE grams")
    assert drafter.propose(context, 8).drafted == 0
    assert drafter.error is not None
    assert "grams" in str(drafter.error)
    assert drafter.propose(context, 8).drafted == 0
    drafter.begin(context)
    assert drafter.error is None
