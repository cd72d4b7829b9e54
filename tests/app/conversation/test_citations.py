"""Citations: found again as long as their text is imported, and nothing hostile in their place."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from app.conversation.citations import (
    CITATIONS_KEY,
    DOCUMENTS_KEY,
    NO_PASSAGE,
    PASSAGE_TOO_LONG,
    SEARCH_KEY,
    Citation,
    CitedText,
    SearchOutcome,
    citation,
    citation_records,
    read_cited,
    stored_citations,
    stored_documents,
    stored_outcome,
    used_passages,
)
from app.conversation.export import as_markdown
from app.indexing.passage_index import FoundPassage, find, open_passages, update
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.errors import InputError
from datastores.library.documents import CHATS, NOTES, Document, Part, StoreDocument
from datastores.library.library import Library
from datastores.passages.chunks import Chunk

WALRUS = "# Walrus\n\nThe walrus keeps seventeen brass telescopes."
GIRAFFE = "# Giraffe\n\nA giraffe sells umbrellas."


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    made = Locations(data=tmp_path, cache=tmp_path / "cache", config=tmp_path)
    write(made, WALRUS)
    return made


def write(locations: Locations, text: str) -> None:
    """Import `text` as the one file of a folder."""
    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        document = Document("zoo", (Part(NOTES, text),))
        library.write([StoreDocument("/notes", "zoo.md", 0, document)])
        list(update(library, passages))


def found(locations: Locations, words: str) -> FoundPassage:
    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        return find(library, passages, words, 1)[0]


def test_a_citation_leads_back_to_its_passage(locations: Locations) -> None:
    passage = found(locations, "telescopes")
    cited = citation(passage)
    assert (cited.path, cited.place) == (Path("/notes/zoo.md"), "notes/zoo.md:1-3")
    assert read_cited(locations, [cited]) == [CitedText(passage.chunk)]
    assert stored_citations({CITATIONS_KEY: citation_records([passage])}) == [cited]


def test_citations_are_relative_to_their_import(locations: Locations) -> None:
    with closing(Library.open(locations.library)) as library:
        chat = (Part(CHATS, "How do I tie knots?", USER), Part(CHATS, "Bowline: first loop", "a"))
        imported = (
            ("/home/notes", "bike.md", Document("bike.md", (Part(NOTES, "bowline\nknots"),))),
            ("/work/notes", "bike.md", Document("bike.md", (Part(NOTES, "bowline knot"),))),
            ("/home/todo.md", "todo.md", Document("todo.md", (Part(NOTES, "tie a bowline"),))),
            ("/home/old.md", "old.md", Document("old.md", (Part(NOTES, "bowlines"),))),
            ("/home/gpt.zip", "conversations.json", Document("Knots (2025-08-12)", chat)),
        )
        for import_path, file, document in imported:
            library.write([StoreDocument(import_path, file, 0, document)])
        library.rename("/home/old.md", "former")
        with closing(open_passages(locations)) as passages:
            list(update(library, passages))
            places = {citation(one).place for one in find(library, passages, "bowline", 9)}
    assert places == {
        "home/notes/bike.md:1-2",
        "work/notes/bike.md:1",
        "todo.md:1",
        "former/old.md:1",
        "gpt.zip: Knots (2025-08-12), message 2",
    }
    assert Citation("/home/notes", "bike.md", 0, 3, 3, "").place == "notes/bike.md:3"


def test_after_a_change_what_is_in_its_place_is_shown_as_changed(locations: Locations) -> None:
    cited = citation(found(locations, "telescopes"))
    write(locations, GIRAFFE)
    now = found(locations, "umbrellas").chunk
    assert read_cited(locations, [cited]) == [CitedText(now, changed=True)]
    assert read_cited(locations, [replace(cited, digest="")]) == [CitedText(now)]
    assert read_cited(locations, [replace(cited, file="other.md")]) == [CitedText(None)]


@pytest.mark.parametrize(
    "records",
    [
        "text",
        [3, None, [], "a"],
        [{"import_path": "/a"}],
        [{"import_path": 1, "file": "a", "first_line": 1, "last_line": 1}],
        [{"import_path": "/a", "file": "a", "first_line": "1", "last_line": 1}],
    ],
)
def test_what_is_no_citation_is_left_out(records: object) -> None:
    assert not stored_citations({CITATIONS_KEY: records})


def test_records_of_the_first_version_are_read() -> None:
    record = {"import_path": "/a", "file": "b", "first_line": 1, "last_line": 2}
    assert stored_citations({CITATIONS_KEY: [record]}) == [Citation("/a", "b", 0, 1, 2, "")]
    assert stored_citations({}) == []
    assert stored_citations({CITATIONS_KEY: []}) == []


def test_exports_name_the_citations(history: History) -> None:
    chat = history.create_chat("Zoo")
    question = history.add_message(chat.id, None, USER, "Who?")
    record = {"import_path": "/a", "file": "`b\n.md", "first_line": 3, "last_line": 4}
    figures = {CITATIONS_KEY: [record]}
    history.add_message(chat.id, question.id, ASSISTANT, "The walrus.", statistics=figures)
    text = "".join(as_markdown(history, history.chats()))
    assert text.endswith("The walrus.\n\n1. `a/'b .md:3-4`\n\n")


def noted(name: str, text: str) -> FoundPassage:
    return FoundPassage("/notes", name, "", b"", 0, Chunk("", 1, 1, text), 1.0)


def test_only_passages_whose_content_is_in_the_answer_are_cited() -> None:
    dentist = noted("dentist.md", "Cleaning costs 95 euro, the insurance pays back 60.")
    pay = noted("pay.md", "Helen offered 4 percent, and 1,500 euro for training.")
    question, told = "How much of the bill do I get back?", "Say that the notes do not say."

    def used(answer: str) -> list[str]:
        passages = used_passages(answer, question, told, [pay, dentist])
        return [passage.file for passage in passages]

    assert used("The insurance pays 60 of 95 euro back.") == ["dentist.md"]
    assert used("The notes do not say how much of the bill you get back.") == [], "told to say"
    assert used("A bill is a list of prices that a company sends its customers.") == []
    assert used("4 percent; and the insurance pays 60.") == ["pay.md", "dentist.md"]
    assert used("Yes.") == ["pay.md", "dentist.md"], "which does not tell"
    assert used("```sh\nbill --much\n```") == ["pay.md", "dentist.md"]
    assert used_passages("Sixty.", question, told, []) == ()


@pytest.mark.parametrize(
    ("outcome", "used", "lines"),
    [
        (SearchOutcome(), 0, [NO_PASSAGE]),
        (SearchOutcome(1), 1, ["1 passage used"]),
        (SearchOutcome(4), 2, ["2 of 4 passages used"]),
        (SearchOutcome(4), 0, ["4 passages read, none used"]),
        (SearchOutcome(), 2, ["2 passages used"]),
        (SearchOutcome(too_long=True), 0, [PASSAGE_TOO_LONG]),
        (
            SearchOutcome(2, unindexed=1040, texts=1820),
            2,
            ["2 passages used", "Notes not searched yet: 1,040 of 1,820"],
        ),
    ],
)
def test_what_a_search_brought_is_said(outcome: SearchOutcome, used: int, lines: list[str]) -> None:
    assert outcome.lines(used) == lines


@pytest.mark.parametrize("hostile", [7, [7], ["xy"], ["abc"], {"a": 1}, "zz"])
def test_documents_are_read_again_or_refused(hostile: object) -> None:
    """They decide what is erased, so damaged ones are not left out."""
    keys = frozenset({b"\x00\xff", b"key"})
    assert stored_documents({DOCUMENTS_KEY: sorted(key.hex() for key in keys)}) == keys
    assert stored_documents({}) == frozenset()
    with pytest.raises(InputError, match="regenerate"):
        stored_documents({DOCUMENTS_KEY: hostile})


def test_an_outcome_is_read_again_whatever_is_stored() -> None:
    outcome = SearchOutcome(2, unindexed=1, texts=3)
    assert stored_outcome({CITATIONS_KEY: [], SEARCH_KEY: asdict(outcome)}) == outcome
    assert stored_outcome({}) is None
    hostile = {"read": "2", "too_long": 1, "unindexed": True, "texts": 3, "more": []}
    assert stored_outcome({SEARCH_KEY: hostile}) == SearchOutcome(texts=3)
    assert stored_outcome({SEARCH_KEY: 7}) is None
    before = {CITATIONS_KEY: [], "passage_too_long": True}
    assert stored_outcome(before) == SearchOutcome(too_long=True), "of earlier versions"
