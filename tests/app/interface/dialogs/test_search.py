"""Chats are found by words as they are typed, and opened at the match."""

from __future__ import annotations

from threading import Event

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.interface.chat import chat_list
from app.interface.dialogs import search
from app.interface.dialogs.search import AnyHit, ChatSearch, SearchConnection
from app.interface.screen import ChatScreen
from datastores.chats.history import History
from datastores.errors import StoreError
from tests.app.interface.conftest import SIZES, Compare, Make, Stage, ready, shown, until
from tests.waiting import TIMEOUT_S


def long_chat(history: History) -> int:
    """A chat of 200 messages, the twentieth of which speaks of walruses."""
    chat = history.create_chat("Sea life").id
    parent = None
    for number in range(200):
        text = f"message {number}" + (" of tusked walruses" if number == 20 else "")
        role = "assistant" if number % 2 else "user"
        parent = history.add_message(chat, parent, role, text).id
    return chat


async def find(pilot: Pilot[None], made: Stage, typed: str) -> OptionList:
    await pilot.press("ctrl+f", *typed)
    found = made.app.screen
    assert isinstance(found, ChatSearch)
    # Each letter begins a search, whose hits are shown in between.
    await until(pilot, lambda: found.found_for == typed)
    listed = found.query_one(OptionList)
    assert listed.option_count
    return listed


async def test_a_word_in_the_middle_of_a_chat_opens_it_there(stage: Make, history: History) -> None:
    chat = long_chat(history)
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await find(pilot, made, "walru")
        await pilot.press("enter")
        await until(pilot, lambda: made.conversation.chat == chat)
        transcript = made.conversation.transcript
        await until(
            pilot, lambda: "tusked walruses" in transcript.rows[transcript.scroll_offset.y].text
        )
        assert made.conversation.prompt.has_focus


async def test_enter_waits_for_what_was_typed_before_it(
    stage: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, at_once = Event(), SearchConnection.find

    def slowly(self: SearchConnection, typed: str) -> list[AnyHit]:
        if typed == "sea life":
            gate.wait(TIMEOUT_S)
        return at_once(self, typed)

    monkeypatch.setattr(SearchConnection, "find", slowly)
    chat = long_chat(history)
    later = history.create_chat("Sea birds").id
    history.add_message(later, None, "user", "gulls")
    made = stage()
    async with made.app.run_test() as pilot:
        await find(pilot, made, "sea")
        await pilot.press(*" life", "enter")
        assert isinstance(made.app.screen, ChatSearch)
        gate.set()
        await until(pilot, lambda: made.conversation.chat == chat)


async def test_a_word_in_another_version_brings_that_version_into_view(
    stage: Make, history: History
) -> None:
    chat = history.create_chat("Animals").id
    history.add_message(chat, None, "user", "about walruses")
    history.add_message(chat, None, "user", "about seals")
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        assert "seals" in shown(made)
        await find(pilot, made, "walruses")
        await pilot.press("enter")
        await until(pilot, lambda: "about walruses" in shown(made))
        await until(pilot, lambda: history.thread(chat)[-1].content == "about walruses")


async def test_titles_are_found_and_arrows_choose(stage: Make, history: History) -> None:
    for name in ("one", "two", "three"):
        chat = history.create_chat(f"Walrus {name}").id
        history.add_message(chat, None, "user", "hm")
    made = stage()
    async with made.app.run_test() as pilot:
        listed = await find(pilot, made, "walrus")
        assert listed.option_count == 3
        await pilot.press("down", "down", "up")
        screen = made.app.screen
        assert isinstance(screen, ChatSearch)
        wanted = screen._hits[1].chat
        await pilot.press("enter")
        await until(pilot, lambda: made.conversation.chat == wanted)


async def test_no_match_is_shown_and_opens_nothing(stage: Make, history: History) -> None:
    long_chat(history)
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+f", *"xyz")
        frame = made.app.screen.query_one("Vertical")
        await until(pilot, lambda: frame.border_subtitle == search.NOTHING_FOUND)
        await pilot.press("enter")
        assert isinstance(made.app.screen, ChatSearch)
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatScreen)
        assert made.conversation.chat is None


async def test_a_history_that_cannot_be_read_is_reported(
    stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(searching: SearchConnection, typed: str) -> list[object]:
        raise StoreError("history.db cannot be read")

    monkeypatch.setattr(SearchConnection, "find", fails)
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+f", "x")
        await until(pilot, lambda: made.app._notifications)
        assert {told.message for told in made.app._notifications} == {"history.db cannot be read"}


@pytest.mark.parametrize("size", SIZES)
def test_search(
    stage: Make,
    history: History,
    snap_compare: Compare,
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (chat_list, search):
        monkeypatch.setattr(module, "age", lambda then, now: "09:41")
    chat = history.create_chat("Copying with \x1b[31mtar").id
    asked = history.add_message(chat, None, "user", "How do I copy a tree with tar?").id
    history.add_message(chat, asked, "assistant", "One tar packs, the other unpacks: " * 8)
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await find(pilot, made, "tar")

    assert snap_compare(made.app, terminal_size=size, run_before=act)
