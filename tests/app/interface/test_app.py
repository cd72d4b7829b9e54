"""The start-up of the interface."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from threading import Event as Flag

import pytest

from app.config import Options
from app.conversation.unsent import read_unsent, write_unsent
from app.interface.app import run
from app.interface.chat import chat_navigation
from datastores.chats.history import History
from datastores.chats.records import USER
from datastores.errors import InputError
from tests.app.interface.conftest import Make, ready, type_in, until


def test_without_a_terminal_it_says_what_to_use_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a question"))
    with pytest.raises(InputError, match="specchat ask"):
        run(Options(data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()


async def test_unsent_text_is_restored_after_a_restart(stage: Make, history: History) -> None:
    chat, private = history.create_chat("public"), history.create_chat("private", private=True)
    for one in (chat, private):
        history.add_message(one.id, None, USER, "a question")
    first = stage()
    async with first.app.run_test() as pilot:
        await ready(pilot, first)
        for opened, text in ((chat.id, "in a chat"), (private.id, "secret"), (None, "new")):
            first.conversation.open(opened)
            await type_in(pilot, first, text)
        first.app.exit()
    assert read_unsent(first.locations.unsent) == {None: "new", chat.id: "in a chat"}
    second = stage()
    async with second.app.run_test() as pilot:
        await ready(pilot, second)
        assert second.conversation.prompt.text == "new"
        second.conversation.open(chat.id)
        await until(pilot, lambda: second.conversation.prompt.text == "in a chat")


async def test_a_question_that_waits_for_the_model_is_restored_after_a_restart(
    stage: Make, history: History
) -> None:
    loaded = Flag()
    first = stage(gate=loaded.wait)
    async with first.app.run_test() as pilot:
        await type_in(pilot, first, "asked")
        await pilot.press("enter")
        await until(pilot, lambda: history.chats() and first.conversation.chat is not None)
        await type_in(pilot, first, "behind it")
        first.app.exit()
        loaded.set()
    assert read_unsent(first.locations.unsent) == {None: "asked\nbehind it"}


async def test_nothing_of_a_new_private_chat_is_kept(stage: Make) -> None:
    made = stage()
    write_unsent(made.locations.unsent, {None: "old"})
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        made.conversation.prompt.clear()
        made.conversation.open(None, private=True)
        await type_in(pilot, made, "secret")
        made.app.exit()
    assert not made.locations.unsent.exists()


async def test_a_model_that_is_loaded_while_the_interface_closes_is_no_error(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await made.conversation.remove_children()
        made.conversation.set_hint("It knows commands.")
        await pilot.pause()


async def test_chats_of_other_processes_appear(
    stage: Make, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_navigation, "WATCH_INTERVAL_S", 0.05)
    made = stage()
    async with made.app.run_test(size=(160, 40)) as pilot:
        await ready(pilot, made)
        other = history.new_connection()
        chat = other.create_chat("from a command")
        other.add_message(chat.id, None, USER, "a question")
        other.close()
        await until(pilot, lambda: made.app.chat_screen.chat_list.count == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stores_what_is_not_sent_and_is_the_exit_code(
    stage: Make, number: signal.Signals
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"typed")
        os.kill(os.getpid(), number)
        await until(pilot, lambda: made.app.return_code is not None)
    assert made.app.return_code == 128 + number
    assert read_unsent(made.locations.unsent) == {None: "typed"}


async def test_what_is_typed_survives_a_kill(stage: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.interface.screen.UNSENT_INTERVAL_S", 0.01)
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        await pilot.press(*"typed")
        await until(pilot, lambda: read_unsent(made.locations.unsent) == {None: "typed"})
        await pilot.press(*["backspace"] * 5)
        await until(pilot, lambda: not made.locations.unsent.exists())
