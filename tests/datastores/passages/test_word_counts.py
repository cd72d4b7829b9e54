"""Words are counted as in the passages' word index."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

from datastores.passages.chunks import Chunk
from datastores.passages.store import INDEX, PassageStore
from datastores.passages.word_counts import count_terms, surface_forms
from datastores.search_form import index_form

ODD = ("", "a " * 500, "naïve NAÏVE naive", "don't_stop 日本語 x86", "\0 \ud7ff 🙂", "page page")


def test_words_are_those_of_the_stores_own_index(tmp_path: Path) -> None:
    chunks = [Chunk(odd, 1, 1, other) for odd in ODD for other in ODD]
    with closing(PassageStore.open(tmp_path / "passages.sqlite")) as passages:
        passages.add(b"odd", enumerate(chunks))
        rows = passages.store.rows("SELECT id, part FROM chunks")
        numbers = {row["id"]: row["part"] for row in rows}
        sql = f"CREATE VIRTUAL TABLE temp.own USING fts5vocab(main, {INDEX}, instance)"
        connection = passages.store.db.conn
        connection.execute(sql)
        expected = Counter(
            (numbers[document], term, column)
            for term, document, column in connection.execute("SELECT term, doc, col FROM own")
        )
    found: Counter[tuple[int, str, str]] = Counter()
    for number, term, in_heading, in_content in count_terms(
        [(index_form(one.heading), index_form(one.content)) for one in chunks]
    ):
        found |= {(number, term, "heading"): in_heading, (number, term, "content"): in_content}
    assert +found == expected


def test_stems_that_are_no_words_get_an_ending() -> None:
    stems = ["remov", "databas", "eras", "alia", "directori", "x1"]
    assert surface_forms(stems) == ["remov", "database", "erase", "alia", "directori", "x1"]
    assert surface_forms([]) == []
