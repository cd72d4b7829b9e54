"""Chats are renamed, pinned, made private and deleted, from the list and by command."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from app.chat_settings import ChatTuning
from app.interface.chat.chat_list import PINNED, PRIVATE, ChatList
from app.interface.dialogs.basic import Confirm, InputDialog
from datastores.chats.history import History
from engines.draft_tree import CHATS
from tests.app.interface.conftest import (
    SIZES,
    Compare,
    Make,
    Stage,
    ask,
    notices,
    ready,
    send,
    shown,
    until,
)
from tests.app.interface.scripted import Script, passes_of
from tests.datastores.chats.test_deletion import holding

SECRET = "the walrus hides its keys under the third stone"
SLOW = Script(passes_of("one two three", [CHATS], 2), holds=True)


def said(made: Stage, count: int) -> bool:
    return len(notices(made)) == count


def chats_of(history: History, *titles: str) -> list[int]:
    """Chats of one message each, oldest first."""
    made = [history.create_chat(title).id for title in titles]
    for chat, title in zip(made, titles, strict=True):
        history.add_message(chat, None, "user", title)
    return made


def lines(made: Stage) -> list[str]:
    listed = made.app.chat_screen.query_one(ChatList)
    return [listed.render_line(row).text for row in range(listed.count)]


async def test_renaming(stage: Make, history: History) -> None:
    (chat,) = chats_of(history, "old")
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+o", "alt+r")
        await until(pilot, lambda: isinstance(made.app.screen, InputDialog))
        assert made.app.screen.query_one(Input).value == "old"
        await pilot.press("end", *" name", "enter")
        await until(pilot, lambda: any("old name" in line for line in lines(made)))
    assert history.chat(chat).title == "old name"


async def test_an_empty_name_or_escape_renames_nothing(stage: Make, history: History) -> None:
    (chat,) = chats_of(history, "old")
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+o", "alt+r", "ctrl+u", "enter")
        await pilot.press("alt+r", "x", "escape")
    made.app.leave()
    assert history.chat(chat).title == "old"


async def test_pinning_moves_a_chat_to_the_top_and_the_cursor_with_it(
    stage: Make, history: History
) -> None:
    first, second = chats_of(history, "first", "second")
    made = stage()
    async with made.app.run_test(size=(160, 40)) as pilot:
        await pilot.press("ctrl+o", "down", "alt+p")
        await until(pilot, lambda: f"{PINNED} first" in lines(made)[0])
        assert made.app.screen.query_one(ChatList).cursor == 0
        await pilot.press("alt+p")
        await until(pilot, lambda: "second" in lines(made)[0])
    assert [chat.id for chat in history.chats()] == [second, first]


async def test_making_private_and_back(stage: Make, history: History) -> None:
    (chat,) = chats_of(history, "diary")
    made = stage()
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+o", "alt+v")
        await until(pilot, lambda: f"{PRIVATE} diary" in lines(made)[0])
        assert history.chat(chat).private
        await until(pilot, lambda: notices(made))
        await pilot.press("alt+v")
        await until(pilot, lambda: PRIVATE not in lines(made)[0])
    assert not history.chat(chat).private


async def test_a_deleted_chat_leaves_no_byte(stage: Make, history: History) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, SECRET)
        await pilot.press("ctrl+o", "delete")
        await until(pilot, lambda: isinstance(made.app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: "Deleted “" in "".join(notices(made)))
        assert made.conversation.chat is None
        assert SECRET not in shown(made)
        assert lines(made) == []
    assert f"{made.locations.history.name}: SQLite" in holding(made.locations.data, "SQLite")
    assert holding(made.locations.data, SECRET) == []


async def test_an_interrupted_erasure_is_finished_at_the_next_start(
    stage: Make, history: History
) -> None:
    (chat,) = chats_of(history, SECRET)
    history.delete_chat(chat)  # and then the process died
    folder = history.store.path.parent
    assert holding(folder, SECRET)
    made = stage()
    async with made.app.run_test() as pilot:
        await until(pilot, lambda: not history.store.rows("SELECT 1 FROM erasures"))
    assert holding(folder, SECRET) == []


async def test_deletion_asks_for_confirmation(stage: Make, history: History) -> None:
    chats_of(history, "kept")
    made = stage()
    async with made.app.run_test() as pilot:
        for key in ("escape", "n", "enter"):
            await pilot.press("ctrl+o", "delete", key)
            made.conversation.prompt.focus()
    assert [chat.title for chat in history.chats()] == ["kept"]


async def test_nothing_is_deleted_while_an_answer_is_written(stage: Make, history: History) -> None:
    made = stage(SLOW)
    async with made.app.run_test() as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "three" in shown(made))
        await made.app.chat_screen.run_action("command('chat.delete')")
        await until(pilot, lambda: isinstance(made.app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: notices(made))
    assert len(history.chats()) == 1


@pytest.mark.parametrize(
    ("verb", "name", "begins"),
    [
        ("markdown", "to-be-kept.md", "# To be: kept?"),
        ("json", "to-be-kept.json", '{"specchat": 1'),
    ],
)
async def test_an_export_names_its_path_and_overwrites_nothing(
    stage: Make,
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    name: str,
    begins: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (chat,) = chats_of(history, "To be: kept?")
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        for count in (1, 2):
            await made.app.chat_screen.run_action(f"command('chat.{verb}')")
            await until(pilot, partial(said, made, count))
    second = tmp_path / name.replace(".", "-2.")
    assert notices(made) == [f"Exported to {tmp_path / name}", f"Exported to {second}"]
    assert (tmp_path / name).read_text().startswith(begins)
    assert second.read_text() == (tmp_path / name).read_text()


async def test_an_empty_chat_cannot_be_renamed(stage: Make) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await made.app.chat_screen.run_action("command('chat.rename')")
        await until(pilot, lambda: notices(made))


async def test_a_chat_deleted_in_another_window_is_reported(stage: Make, history: History) -> None:
    (chat,) = chats_of(history, "gone")
    made = stage()
    async with made.app.run_test() as pilot:
        made.conversation.open(chat)
        history.delete_chat(chat)
        await made.app.chat_screen.run_action("command('chat.pin')")
        await until(pilot, lambda: notices(made))
        assert f"No chat {chat}" in notices(made)[0]


async def test_a_new_private_chat_is_private_from_its_first_message(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await made.app.chat_screen.run_action("command('chat.new-private')")
        await until(pilot, lambda: "not used for drafts" in shown(made))
        await until(pilot, lambda: made.conversation.topbar.private)
        await ask(pilot, made, "dear diary")
        await pilot.press("ctrl+n")
        await ask(pilot, made, "how is the weather?")
        assert not made.conversation.topbar.private
    assert [chat.private for chat in history.chats()] == [False, True]


async def test_an_empty_chat_is_made_private_and_public_again(
    stage: Make, history: History
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        made.conversation.tuning = ChatTuning("Answer in French.")
        for private in (True, False, True):
            await made.app.chat_screen.run_action("command('chat.private')")
            assert made.conversation.topbar.private is private
        await until(pilot, lambda: "not used for drafts" in shown(made))
        await ask(pilot, made, "dear diary")
    (chat,) = history.chats()
    assert (chat.private, chat.system) == (True, "Answer in French.")


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
async def test_a_private_chat_looks_private_at_every_width_and_after_a_restart(
    stage: Make, history: History, width: int
) -> None:
    (chat,) = chats_of(history, "A long title that leaves no room for anything else in the line")
    history.set_private(chat, True)
    made = stage()
    async with made.app.run_test(size=(width, 24)) as pilot:
        await ready(pilot, made)
        made.conversation.open(chat)
        await until(pilot, lambda: made.conversation.topbar.private)
        top = made.conversation.topbar
        assert top.render().plain[: top.content_size.width].lstrip().startswith("private · A long")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("key", "screen"), [("alt+r", InputDialog), ("delete", Confirm)])
def test_dialogs_of_a_chat(
    stage: Make,
    history: History,
    snap_compare: Compare,
    size: tuple[int, int],
    key: str,
    screen: type[object],
) -> None:
    first, second, _ = chats_of(history, "Rename many files", "Diary", "What does tar do?")
    history.pin(first, True)
    history.set_private(second, True)
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        await pilot.press("ctrl+o", key)
        await until(pilot, lambda: isinstance(made.app.screen, screen))

    assert snap_compare(made.app, terminal_size=size, run_before=act)
