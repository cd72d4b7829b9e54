"""Imported chats: listed by date, read as they were, found by their words, copied to continue."""

from __future__ import annotations

from contextlib import closing

import pytest

from app.conversation.imported_chats import (
    GONE,
    ImportedChatSearch,
    copy_chat,
    imported_chats,
    read_messages,
)
from app.indexing.passage_index import open_passages, update
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.chats.search import search
from datastores.errors import InputError
from datastores.library.documents import (
    CHATS,
    NOTES,
    Document,
    Part,
    StoreDocument,
    dated_title,
    split_title,
)
from datastores.library.library import Library

KNOTS = (
    Part(CHATS, "How do I tie a bowline?", USER),
    Part(CHATS, "Make a small loop; the end comes up through it.", ASSISTANT),
    Part(CHATS, "And a reef knot?", USER),
)
TEA = (Part(CHATS, "Which tea in the evening?", USER), Part(CHATS, "Rooibos.", ASSISTANT))


@pytest.fixture
def chats(library: Library, locations: Locations) -> Library:
    """Three imported chats, one of them in two imports, and a note."""
    documents = (
        ("/gpt.zip", "conversations.json", Document(dated_title("Knots", "2025-08-12"), KNOTS)),
        ("/again.zip", "conversations.json", Document(dated_title("Knots", "2025-08-12"), KNOTS)),
        ("/claude.zip", "conversations.json", Document(dated_title("Tea", "2026-01-02"), TEA)),
        ("/old.json", "old.json", Document("Undated", (Part(CHATS, "Hello there", USER),))),
        ("/notes", "knots.md", Document("Knots (2020-01-01)", (Part(NOTES, "A bowline."),))),
    )
    for import_path, file, document in documents:
        library.write([StoreDocument(import_path, file, 0, document)])
    with closing(open_passages(locations)) as passages:
        list(update(library, passages))
    return library


@pytest.mark.parametrize(
    ("title", "date"), [("Knots", "2025-08-12"), ("Knots", ""), ("A (2020-01-01)", "2025-08-12")]
)
def test_a_title_holds_its_date(title: str, date: str) -> None:
    assert split_title(dated_title(title, date)) == (title, date)


def test_chats_are_listed_once_newest_first(chats: Library) -> None:
    listed = imported_chats(chats)
    assert [(one.title, one.date) for one in listed] == [
        ("Tea", "2026-01-02"),
        ("Knots", "2025-08-12"),
        ("Undated", ""),
    ]
    assert [one.import_name for one in listed] == ["claude.zip", "again.zip", "old.json"]
    assert [bool(one.updated) for one in listed] == [True, True, False]


def test_a_chat_is_read_as_one_path(chats: Library) -> None:
    _, knots, _ = imported_chats(chats)
    read = read_messages(chats, knots)
    assert [(one.role, one.content, one.parent) for one in read] == [
        (part.role, part.text, parent) for part, parent in zip(KNOTS, (None, 1, 2), strict=True)
    ]


def test_a_copy_is_a_chat_of_ones_own_and_the_import_stays(
    chats: Library, history: History
) -> None:
    _, knots, _ = imported_chats(chats)
    copied = copy_chat(chats, history, knots)
    assert [one.content for one in history.thread(copied.id)] == [part.text for part in KNOTS]
    assert (copied.title, copied.private, copied.created) == ("Knots", False, knots.updated)
    assert history.chats() == [copied]
    assert history.add_message(copied.id, copied.active, ASSISTANT, "Right over left.")
    assert [hit.chat for hit in search(history, "bowline")] == [copied.id]
    assert imported_chats(chats)[1] == knots


def test_a_chat_that_was_removed_is_neither_read_nor_copied(
    chats: Library, history: History
) -> None:
    tea, *_ = imported_chats(chats)
    chats.forget("/claude.zip")
    for act in (lambda: read_messages(chats, tea), lambda: copy_chat(chats, history, tea)):
        with pytest.raises(InputError, match=GONE):
            act()
    assert history.chats() == []


@pytest.mark.parametrize(
    ("typed", "hits"),
    [
        ("kno", [("Knots", None)]),
        ("bowline", [("Knots", 0)]),
        ("small loop", [("Knots", 1)]),
        ("loop rooibos", []),
        ("TEA", [("Tea", None), ("Tea", 0)]),
        ("hello th", [("Undated", 0)]),
        (" ", []),
        ("\0", []),
    ],
)
def test_chats_are_found_by_words_in_titles_and_messages(
    chats: Library, locations: Locations, typed: str, hits: list[tuple[str, int | None]]
) -> None:
    with closing(ImportedChatSearch(locations)) as searching:
        found = searching.find(typed)
    assert [(hit.title, hit.message) for hit in found] == hits
    assert all(hit.excerpt.spans for hit in found)


def test_a_search_follows_the_library(chats: Library, locations: Locations) -> None:
    with closing(ImportedChatSearch(locations)) as searching:
        assert searching.find("tea")
        chats.forget("/claude.zip")
        assert searching.find("tea") == []
