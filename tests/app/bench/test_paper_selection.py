"""The paper's CREST: the most common n-grams, and the longest match alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from app.bench.baselines import LongestMatch, select_most_common
from datastores.crest.build import count
from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from tests.datastores.crest.reference import strings
from tests.datastores.crest.test_build import entry, read, text_like
from tests.engines.drafters.test_crest import TEXTS, asked


def test_the_paper_keeps_the_most_common() -> None:
    docs = text_like(20_000)
    built = select_most_common(count(docs, 0), (1, 2), 50)
    pages = read(built)
    assert built.entry_count == 100
    for length in (1, 2):
        best = strings(docs, length).most_common(51)
        for ngram, occurrences in best:
            if occurrences > best[-1][1]:
                assert entry(built, pages, ngram) is not None


def test_the_longest_match_excludes_the_shorter(tmp_path: Path) -> None:
    with closing(CrestStore.open(tmp_path / "crest.db", 1 << 22)) as store:
        store.rebuild(TEXTS)
    with closing(CrestReader(tmp_path / "crest.db")) as reader:
        drafter = LongestMatch(reader)
        assert set(drafter.propose(asked(9, 8, 2, 3), 64).tokens[1:]) == {9, 8, 2, 3}
        assert drafter.propose(asked(70, 71), 16).drafted == 0
