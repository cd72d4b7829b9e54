"""Imported chats in the interface: listed and hidden, read-only, found, continued as a copy."""

from __future__ import annotations

from contextlib import closing

import pytest
from textual.containers import Vertical
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.config import load_config
from app.indexing.passage_index import find, open_passages, update
from app.interface.chat import chat_list
from app.interface.chat.chat_list import READ_ONLY
from app.interface.chat.imported_chat import ImportedChatView
from app.interface.dialogs.cited_passages import CitedPassages
from app.interface.dialogs.search import ChatSearch
from app.locations import Locations
from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, USER
from datastores.library.documents import CHATS, Document, Part, StoreDocument, dated_title
from datastores.library.library import Library
from tests.app.interface.conftest import (
    Compare,
    Make,
    Stage,
    ask,
    notices,
    ready,
    shown,
    until,
)
from tests.app.interface.scripted import Script, passes_of

HOSTILE = "\x1b]0;owned\x07[bold]Loops"


def put(locations: Locations, title: str, date: str, *texts: str) -> None:
    """Import a chat in which `texts` were said in turns."""
    parts = tuple(
        Part(CHATS, text, (USER, ASSISTANT)[number % 2]) for number, text in enumerate(texts)
    )
    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        position = len(library.texts_in("/home/chatgpt.zip", "chats.json"))
        document = Document(dated_title(title, date), parts)
        library.write([StoreDocument("/home/chatgpt.zip", "chats.json", position, document)])
        list(update(library, passages))


def imported(stage: Make) -> Stage:
    made = stage()
    put(made.locations, "Knots", "2025-08-12", "How do I tie a bowline?", "Make a small loop.")
    put(made.locations, HOSTILE, "2025-08-11", "Hello", *["More of it"] * 30)
    return made


def titles(made: Stage) -> list[str]:
    return [chat.title for chat in made.app.chat_screen.chat_list._chats]


def read(made: Stage) -> str:
    assert isinstance(made.app.screen, ImportedChatView)
    return "\n".join(row.text for row in made.app.screen.list_widget.rows)


async def listed(pilot: Pilot[None], made: Stage, count: int) -> None:
    await ready(pilot, made)
    await until(pilot, lambda: len(titles(made)) == count)


async def test_they_are_listed_by_date_and_a_key_hides_them(stage: Make, history: History) -> None:
    chat = history.create_chat("Mine").id
    history.add_message(chat, None, USER, "question")
    made = imported(stage)
    async with made.app.run_test(size=(160, 24)) as pilot:
        await listed(pilot, made, 3)
        assert titles(made) == ["Mine", "Knots", HOSTILE]
        await pilot.press("ctrl+o", "down", "delete")
        assert notices(made) == [READ_ONLY]
        await pilot.press("alt+h")
        await until(pilot, lambda: titles(made) == ["Mine"])
        assert not load_config(made.locations.settings).imported_chats
        await pilot.press("alt+h")
        await until(pilot, lambda: len(titles(made)) == 3)
        await pilot.press("escape", "alt+down", "alt+down")
        assert made.conversation.chat == chat, "they are not stepped through"


async def test_one_is_read_and_then_continued_in_a_copy(stage: Make, history: History) -> None:
    made = imported(stage)
    async with made.app.run_test(size=(160, 24)) as pilot:
        await listed(pilot, made, 2)
        await pilot.press("ctrl+o", "enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportedChatView))
        await until(pilot, lambda: "Make a small loop." in read(made))
        await pilot.press("escape")
        assert history.chats() == []
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportedChatView))
        await pilot.press("enter")
        await until(pilot, lambda: made.conversation.chat is not None)
        (copied,) = history.chats()
        assert copied.title == "Knots"
        assert [one.content for one in history.thread(copied.id)][1] == "Make a small loop."
        await until(pilot, lambda: len(titles(made)) == 3)
        assert made.conversation.prompt.has_focus


async def test_one_is_found_and_opened_at_the_message(stage: Make, history: History) -> None:
    made = imported(stage)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        await pilot.press("ctrl+f", *"small loop")
        found = made.app.screen
        assert isinstance(found, ChatSearch)
        await until(pilot, lambda: found.found_for == "small loop")
        (option,) = found.query_one(OptionList).options
        assert "Knots  answer, 2025, imported" in str(option.prompt)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportedChatView))
        await until(pilot, lambda: "Make a small loop." in read(made))
        made.app.screen.dismiss(None)


async def test_a_citation_of_one_opens_it_at_the_message(stage: Make) -> None:
    made = imported(stage)
    with (
        closing(Library.open(made.locations.library)) as library,
        closing(open_passages(made.locations)) as passages,
    ):
        (passage,) = find(library, passages, "small loop", 1)
    made.scripts[:] = [Script(passes_of("Loop first.", [0], 1), passages=(passage,))]
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        await ask(pilot, made, "How?")
        assert "[1] chatgpt.zip: Knots (2025-08-12), message 1" in shown(made)
        await pilot.press("alt+s")
        await until(pilot, lambda: isinstance(made.app.screen, CitedPassages))
        await until(
            pilot, lambda: "Open chat" in str(made.app.screen.query_one(Vertical).border_subtitle)
        )
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(made.app.screen, ImportedChatView))
        await until(pilot, lambda: "Make a small loop." in read(made))


async def test_the_list_follows_imports_and_removals_by_other_processes(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(160, 24)) as pilot:
        await ready(pilot, made)
        put(made.locations, "Knots", "2025-08-12", "How do I tie a bowline?")
        made.app.chat_screen.navigation.follow_others()
        await until(pilot, lambda: titles(made) == ["Knots"])
        with closing(Library.open(made.locations.library)) as library:
            library.forget("/home/chatgpt.zip")
        made.app.chat_screen.navigation.follow_others()
        await until(pilot, lambda: titles(made) == [])


async def test_one_that_was_removed_says_so(stage: Make) -> None:
    made = imported(stage)
    async with made.app.run_test(size=(160, 24)) as pilot:
        await listed(pilot, made, 2)
        with closing(Library.open(made.locations.library)) as library:
            library.forget("/home/chatgpt.zip")
        await pilot.press("ctrl+o", "enter")
        await until(pilot, lambda: notices(made) == ["This chat is no longer imported"])


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
@pytest.mark.parametrize("what", ["list", "chat"])
def test_imported_chats(
    what: str,
    size: tuple[int, int],
    stage: Make,
    history: History,
    snap_compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_list, "age", lambda then, now: "12 Aug")
    chat = history.create_chat("My own chat").id
    history.add_message(chat, None, USER, "question")
    made = imported(stage)

    async def act(pilot: Pilot[None]) -> None:
        await listed(pilot, made, 3)
        await pilot.press("ctrl+o", "down")
        if what == "chat":
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(made.app.screen, ImportedChatView))
            await until(pilot, lambda: "Make a small loop." in read(made))

    assert snap_compare(made.app, terminal_size=size, run_before=act)
