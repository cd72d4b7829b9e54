"""The paper's selection keeps what is most common."""

from __future__ import annotations

from app.bench.baselines.paper_selection import select_most_common
from datastores.crest.build import count
from tests.datastores.crest.reference import strings
from tests.datastores.crest.test_build import entry, read, text_like


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
