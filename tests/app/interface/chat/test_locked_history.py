"""While another connection holds the write lock, the interface works on and changes are deferred.

A change made on the interface's thread would block, since that thread holds the lock here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from textual.widgets import Input

from app.interface.chat.chat_list import ChatList
from app.interface.commands.help import Help
from app.interface.dialogs.basic import InputDialog
from app.interface.dialogs.chat_settings import ChatSettingsForm
from datastores.chats.history import History
from datastores.chats.presets import Presets
from engines.draft_tree import CHATS
from tests.app.interface.conftest import (
    Make,
    answered,
    ask,
    notices,
    ready,
    send,
    shown,
    type_in,
    until,
)
from tests.app.interface.scripted import Script, passes_of


@contextmanager
def locked(history: History) -> Iterator[None]:
    """Hold the write lock over a separate connection."""
    with closing(history.new_connection()) as other, other.store.writing():
        yield


async def test_a_new_chat_is_stored_and_answered_afterwards(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        with locked(history):
            await type_in(pilot, made, "copy?")
            await pilot.press("enter", *"next")
            assert made.conversation.prompt.text == "next"
            assert "copy?" in shown(made)
            await pilot.press("f1")
            assert isinstance(made.app.screen, Help)
            await pilot.press("escape")
            assert not made.assistant.asked
            assert not history.chats()
        await until(pilot, lambda: made.assistant.asked == ["copy?"])
        await answered(pilot, made)
        (chat,) = history.chats()
        assert made.conversation.chat == chat.id
        assert "cp -r source/" in shown(made)
        assert made.conversation.prompt.text == "next"
        assert not notices(made)


async def test_a_chat_that_was_left_before_it_was_stored_is_answered_where_it_belongs(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        with locked(history):
            await type_in(pilot, made, "copy?")
            await pilot.press("enter", "ctrl+n")
            assert "copy?" not in shown(made)
        await until(pilot, lambda: made.assistant.asked == ["copy?"])
        await answered(pilot, made)
        (chat,) = history.chats()
        assert made.conversation.chat is None
        assert "copy?" not in shown(made)
        assert history.thread(chat.id)[0].content == "copy?"


async def test_a_question_stopped_before_its_chat_was_stored_is_returned(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        with locked(history):
            await type_in(pilot, made, "copy?")
            await pilot.press("enter", "escape")
        await answered(pilot, made)
        assert made.conversation.prompt.text == "copy?"
        assert not made.assistant.asked


async def test_an_answer_that_waits_for_the_lock_does_not_block_the_interface(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        with locked(history):
            await type_in(pilot, made, "second")
            await pilot.press("enter", "ctrl+n", "alt+down")
            assert made.conversation.chat == history.chats()[0].id
            await pilot.press(*"next")
            assert made.conversation.prompt.text == "next"
        await answered(pilot, made)
        assert made.assistant.asked == ["first", "second"]


async def test_changes_of_chats_are_made_in_order_afterwards(stage: Make, history: History) -> None:
    chat = history.create_chat("old").id
    history.add_message(chat, None, "user", "old")
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        with locked(history):
            await pilot.press("ctrl+o", "alt+p", "alt+p", "alt+p", "alt+r")
            await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
            assert made.app.screen.query_one(Input).value == "old"
            await pilot.press("end", *" name", "enter")
            assert not history.chat(chat).pinned
        await until(pilot, lambda: history.chat(chat).title == "old name")
        assert history.chat(chat).pinned
        listed = made.app.screen.query_one(ChatList)
        await until(pilot, lambda: "old name" in listed.render_line(0).text)


async def test_another_version_is_shown_at_once_and_stored_afterwards(
    stage: Make, history: History
) -> None:
    made = stage(*(Script(passes_of(f"{name} it is", [CHATS], 2)) for name in ("One", "Two")))
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "which?")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "‹ 2/2 ›" in shown(made))
        await answered(pilot, made)
        chat = history.chats()[0].id
        with locked(history):
            await pilot.press("alt+left")
            assert "One it is" in shown(made)
            assert history.thread(chat)[-1].content == "Two it is"
        await until(pilot, lambda: history.thread(chat)[-1].content == "One it is")


async def test_settings_and_presets_are_stored_afterwards(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "first")
        chat = history.chats()[0].id
        with locked(history):
            await pilot.press("ctrl+s")
            await until(pilot, lambda: isinstance(made.app.screen, ChatSettingsForm))
            await pilot.press(*"brief", "ctrl+t", *"mine", "enter")
            await until(pilot, lambda: isinstance(made.app.screen, ChatSettingsForm))
            await pilot.press(*"er", "ctrl+s")
            await pilot.press(*"next")
            assert made.conversation.prompt.text == "next"
            assert not Presets(history).all()
        await until(pilot, lambda: history.chat(chat).system == "briefer")
        assert [preset.system for preset in Presets(history).all()] == ["brief"]


async def test_a_lock_that_is_not_released_is_reported_once_and_returns_the_question(
    stage: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastores.storage.sqlite.BUSY_TIMEOUT_S", 0.05)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        with locked(history):
            await send(pilot, made, "copy?")
            await answered(pilot, made)
            assert made.conversation.prompt.text == "copy?"
            assert len(notices(made)) == 1
        await pilot.press("enter")
        await until(pilot, lambda: made.assistant.asked == ["copy?"])


async def test_what_was_requested_before_quitting_is_stored(stage: Make, history: History) -> None:
    chat = history.create_chat("one").id
    history.add_message(chat, None, "user", "one")
    made = stage()
    with locked(history):
        async with made.app.run_test() as pilot:
            await ready(pilot, made)
            await pilot.press("ctrl+o", "alt+p")
            assert not history.chat(chat).pinned
            await pilot.press("ctrl+q")
    made.app.leave()
    assert history.chat(chat).pinned
