"""The list of chats: its content, its cursor, and when it is visible."""

from __future__ import annotations

import pytest

from app.interface.chat.chat_list import ChatList
from datastores.chats.history import History
from tests.app.interface.conftest import PLAIN, Make, ask, until


async def test_chats_are_listed_opened_and_stepped_through(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=(160, 40)) as pilot:
        await ask(pilot, made, "first chat")
        await pilot.press("ctrl+n")
        await ask(pilot, made, "second chat")
        listed = made.app.screen.query_one(ChatList)
        assert listed.count == 2
        await pilot.press("alt+down")
        assert made.conversation.topbar.chat == "first chat"
        await pilot.press("ctrl+o", "up", "enter")
        assert made.conversation.topbar.chat == "second chat"
        assert made.conversation.prompt.has_focus


async def test_the_list_is_hidden_on_narrow_screens_until_requested(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        listed = made.app.screen.query_one(ChatList)
        assert not listed.display
        await pilot.press("ctrl+o")
        assert listed.display
        assert listed.has_focus
        await pilot.press("ctrl+o")
        assert not listed.display
        assert made.conversation.prompt.has_focus


async def test_on_a_tiny_screen_the_list_covers_the_chat_until_one_is_chosen(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test(size=(40, 12)) as pilot:
        await ask(pilot, made, "first chat")
        await until(pilot, lambda: made.app.screen.query_one(".-footer").size.height)
        listed = made.app.screen.query_one(ChatList)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: listed.size.width == 40)
        await pilot.press("enter")
        await until(pilot, lambda: not listed.display)
        assert made.conversation.prompt.has_focus
        assert made.conversation.topbar.chat == "first chat"


@pytest.mark.parametrize("measured", [True, False])
async def test_the_list_opens_at_the_open_chat(
    stage: Make, history: History, measured: bool
) -> None:
    """Textual sends no resize event if it measured the list before laying it out."""
    for number in range(100):
        history.add_message(history.create_chat(f"chat {number}").id, None, "user", "hi")
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        made.conversation.open(history.chats()[60].id)
        await pilot.pause()
        made.app.screen._compositor._full_map_invalidated = measured
        await pilot.press("ctrl+o")
        listed = made.app.screen.query_one(ChatList)
        await until(pilot, lambda: listed.scroll_offset.y > 30)
        assert any("chat 39" in listed.render_line(row).text for row in range(listed.size.height))


async def test_empty_chats_are_not_listed(stage: Make, history: History) -> None:
    history.create_chat("never used")
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.pause()
        assert made.app.screen.query_one(ChatList).count == 0
