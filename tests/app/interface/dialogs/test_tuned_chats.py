"""A chat with its own settings has a mark, and shows which they are."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from app.interface.chat import chat_list
from app.interface.chat.chat_list import ChatList
from datastores.chats.history import History
from tests.app.interface.conftest import SIZES, Compare, Make, Stage, ask, ready, until


def listed(made: Stage) -> list[str]:
    """The lines of the list of chats."""
    shown = made.app.screen.query_one(ChatList)
    return [shown.render_line(row).text for row in range(shown.count)]


def head(made: Stage) -> str:
    """The line at the top."""
    return str(made.conversation.topbar.render())


async def test_a_chat_with_settings_of_its_own_is_marked_and_says_them(stage: Make) -> None:
    made = stage()
    async with made.app.run_test(size=(160, 50)) as pilot:
        await ask(pilot, made, "plain")
        await pilot.press("ctrl+n", "ctrl+s", *"Be brief.", "tab", *"1.5", "enter")
        await until(pilot, lambda: "New chat  ± temperature 1.5, system prompt" in head(made))
        await ask(pilot, made, "tuned")
        assert "tuned  ± temperature 1.5, system prompt" in head(made)
        assert ["±" in line for line in listed(made)] == [True, False]
        await pilot.press("alt+down")
        assert "±" not in head(made)
        await pilot.press("alt+up", "ctrl+s", "ctrl+a", "ctrl+k", "tab", "ctrl+u", "enter")
        await until(pilot, lambda: "±" not in head(made) + "".join(listed(made)))


async def test_a_narrow_screen_shows_the_mark_alone(stage: Make, history: History) -> None:
    chat = history.create_chat("so many words " * 9, sampling={"seed": 3, "top_k": 1}).id
    history.add_message(chat, None, "user", "hi")
    made = stage()
    async with made.app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, made)
        made.conversation.open(chat)
        await until(pilot, lambda: "± " in head(made))
        assert "… ±  " in head(made)
        assert "seed" not in head(made)


@pytest.mark.parametrize("size", SIZES)
def test_chats_with_settings_of_their_own(
    stage: Make,
    history: History,
    snap_compare: Compare,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
) -> None:
    monkeypatch.setattr(chat_list, "age", lambda then, now: "12:34")
    settings = {"temperature": 1.2, "top_k": 5}
    for title, system, sampling, private in (
        ("Verses about the sea", "You are a poet.", settings, True),
        ("Copying a directory", "", {}, False),
        ("The same answer each time", "", {"seed": 7}, False),
    ):
        chat = history.create_chat(title, private=private, system=system, sampling=sampling).id
        history.add_message(chat, None, "user", "hi")
    made = stage()

    async def act(pilot: Pilot[None]) -> None:
        await ready(pilot, made)
        made.conversation.open(history.chats()[-1].id)
        await pilot.press("ctrl+o")

    assert snap_compare(made.app, terminal_size=size, run_before=act)
