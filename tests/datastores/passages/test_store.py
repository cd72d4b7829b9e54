"""Passages are stored once, found at once, and removed to the last byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from datastores.passages.chunks import split
from datastores.passages.store import PassageStore
from engines.retrieval.bm25 import Bm25Retriever
from tests.datastores.passages.pages import TEXTS, open_pages


@pytest.fixture
def passages(tmp_path: Path) -> Iterator[PassageStore]:
    with closing(open_pages(tmp_path)) as store:
        yield store


def test_a_text_is_added_once_and_found_at_once(passages: PassageStore) -> None:
    count = len(passages)
    passages.add(b"tar", [(0, chunk) for chunk in split("something else")])
    assert len(passages) == count
    passages.add(b"new", [(0, chunk) for chunk in split("zebra crossing")])
    ((found,),) = Bm25Retriever(passages).search(["zebras"], 1)
    assert found.passage.text == b"new"


def test_what_is_removed_leaves_no_byte_and_no_word(passages: PassageStore, tmp_path: Path) -> None:
    passages.add(b"secret", [(0, chunk) for chunk in split("xylophone quartz " * 200)])
    passages.remove([b"secret", b"never stored"])
    assert passages.keys() == TEXTS.keys()
    assert Bm25Retriever(passages).search(["xylophone"], 1) == [[]]
    for file in tmp_path.iterdir():
        content = file.read_bytes().lower()
        assert b"xylophon" not in content, file
        assert b"quartz" not in content, file


def test_removed_passages_are_left_out(passages: PassageStore) -> None:
    ids = [scored.passage.id for scored in Bm25Retriever(passages).search(["archive"], 5)[0]]
    assert [passage.id for passage in passages.passages(ids)] == ids
    passages.remove([b"zip"])
    assert {passage.text for passage in passages.passages(ids)} == {b"tar"}


def test_texts_are_removed_after_another_connection_rewrote_the_file(
    passages: PassageStore, tmp_path: Path
) -> None:
    with closing(PassageStore.open(tmp_path / "passages.db")) as other:
        assert other.keys() == TEXTS.keys()
        passages.store.vacuum()
        other.remove([b"zip"])
    assert passages.keys() == TEXTS.keys() - {b"zip"}
