"""What is built from imported texts follows them, all of it by one call."""

from __future__ import annotations

from contextlib import closing

from app.indexing.corpus_index import open_index
from app.indexing.passage_index import find, open_passages
from app.indexing.refresh import is_due, refresh
from app.locations import Locations
from datastores.library.documents import NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from tests.app.scripted import ScriptedVocabulary


def test_passages_and_tokens_are_brought_up_to_date_together(
    locations: Locations, library: Library
) -> None:
    document = Document("t", (Part(NOTES, "walrus telescopes " * 20),))
    library.write([StoreDocument("/s", "f", 0, document)])
    with open_index(locations, ScriptedVocabulary(), 2**22) as index:
        assert is_due(index, locations)
        assert index.lock.acquire()
        reports = list(refresh(index, locations))
        assert reports[-1].tokens, "the last report is of the tokens"
        assert not is_due(index, locations)
    with closing(open_passages(locations)) as passages:
        (found,) = find(library, passages, "telescopes", 1)
        assert found.file == "f"
        passages.remove(passages.keys())
    with open_index(locations, ScriptedVocabulary(), 2**22) as index:
        assert is_due(index, locations), "passages alone are missing"


def test_a_damaged_store_of_passages_begins_anew(locations: Locations, library: Library) -> None:
    document = Document("t", (Part(NOTES, "a giraffe"),))
    library.write([StoreDocument("/notes", "a.md", 0, document)])
    with open_index(locations, ScriptedVocabulary(), 2**22) as index:
        assert index.lock.acquire()
        list(refresh(index, locations))
        locations.passages.write_bytes(b"no database at all, and more than a header's bytes" * 20)
        assert is_due(index, locations)
        assert not list(locations.projections.glob("*corrupt*")), "it may hold what was deleted"
        list(refresh(index, locations))
        assert not is_due(index, locations)
