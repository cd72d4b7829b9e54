"""A stopped answer is continued by key and by command."""

from __future__ import annotations

from collections.abc import Callable

from app.interface.commands.key_hints import CUT_OFF, READING, KeyHints
from datastores.chats.history import History
from engines.draft_tree import CHATS
from tests.app.interface.conftest import Stage, answered, notices, send, shown, until
from tests.app.interface.scripted import Script, passes_of

BEGUN = Script(passes_of("one two three", [CHATS], 2), holds=True)
REST = Script(passes_of(" four five", [CHATS], 2))


async def test_a_stopped_answer_is_continued_in_the_same_message(
    stage: Callable[..., Stage], history: History
) -> None:
    made = stage(BEGUN, REST)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await send(pilot, made, "count")
        await until(pilot, lambda: "three" in shown(made))
        await pilot.press("escape")
        await answered(pilot, made)
        hints = made.app.screen.query_one(KeyHints)
        assert hints._hints == CUT_OFF
        await pilot.press("alt+r")
        await until(pilot, lambda: "one two three four five" in shown(made))
        await answered(pilot, made)
        assert "stopped" not in shown(made)
        assert "‹" not in shown(made), "no second version"
        assert hints._hints == READING
        await send(pilot, made, "/continue")
        await until(pilot, lambda: notices(made))
        assert notices(made) == ["The last answer is complete: nothing to continue."]
    (chat,) = history.chats()
    assert [message.content for message in history.thread(chat.id)] == [
        "count",
        "one two three four five",
    ]
