"""Messages sent during an answer are queued until it ends: visible, editable, never lost."""

from __future__ import annotations

from threading import Event as Flag

from textual.pilot import Pilot

from app.conversation.unsent import read_unsent
from app.interface.commands.key_hints import QUEUED, KeyHints
from datastores.chats.history import History
from datastores.errors import ModelError
from engines.draft_tree import CHATS
from tests.app.interface.conftest import PLAIN, Make, Stage, answered, send, shown, type_in, until
from tests.app.interface.scripted import Script, passes_of

HELD = Script(passes_of("one two three", [CHATS], 2), holds=True)


def gated(fails: ModelError | None = None) -> tuple[Script, Flag]:
    """An answer that ends when the flag is set."""
    flag = Flag()
    script = Script(passes_of("one two three", [CHATS], 2), fails=fails, gate=flag.wait)
    return script, flag


def queued(made: Stage) -> list[str]:
    return [message.text for message in made.conversation.queue.messages]


async def answering(pilot: Pilot[None], made: Stage) -> None:
    """Ask a question, and queue two messages."""
    await send(pilot, made, "first")
    await until(pilot, lambda: "one" in shown(made))
    await send(pilot, made, "second")
    await send(pilot, made, "third")
    await until(pilot, lambda: len(queued(made)) == 2)


async def test_queued_messages_are_shown(stage: Make) -> None:
    made = stage(HELD)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        bar = made.conversation.queue
        assert bar.display
        assert str(bar.render()).splitlines() == ["queued second ✕", "queued third ✕"]
        assert made.app.screen.query_one(KeyHints)._hints == QUEUED
        await pilot.resize_terminal(40, 12)
        await until(pilot, lambda: bar.size.height == 1)
        assert str(bar.render()) == "queued second · 1 more ✕"
        assert made.conversation.transcript.size.height >= 3


async def test_they_are_sent_when_the_answer_ends(stage: Make, history: History) -> None:
    first, flag = gated()
    made = stage(first, PLAIN)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        flag.set()
        await until(pilot, lambda: made.assistant.asked == ["first", "second", "third"])
        await answered(pilot, made)
        assert not made.conversation.queue.display
    (chat,) = history.chats()
    asked = [message.content for message in history.thread(chat.id) if message.role == "user"]
    assert asked == ["first", "second", "third"]


async def test_they_are_sent_in_their_own_chat_while_another_is_open(
    stage: Make, history: History
) -> None:
    first, flag = gated()
    made = stage(first, PLAIN)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        await pilot.press("ctrl+n")
        assert not made.conversation.queue.display
        flag.set()
        await until(pilot, lambda: made.assistant.asked == ["first", "second", "third"])
        await answered(pilot, made)
        assert made.conversation.chat is None
    (chat,) = history.chats()
    assert len(history.thread(chat.id)) == 6


async def test_one_message_is_edited_and_one_is_removed(stage: Make) -> None:
    made = stage(HELD)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        await pilot.press("alt+q")
        await until(pilot, lambda: made.conversation.prompt.text == "third")
        assert queued(made) == ["second"]
        await pilot.press("!", "enter")
        await until(pilot, lambda: queued(made) == ["second", "third!"])
        bar = made.conversation.queue
        await pilot.click(bar, offset=(1 + len("queued second "), 0))
        await until(pilot, lambda: queued(made) == ["third!"])
        await pilot.click(bar, offset=(10, 0))
        await until(pilot, lambda: made.conversation.prompt.text == "third!")
        assert not bar.display


async def test_they_return_to_the_prompt_when_the_answer_is_stopped(stage: Make) -> None:
    made = stage(HELD)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        await type_in(pilot, made, "half")
        await pilot.press("escape")
        await answered(pilot, made)
        assert made.conversation.prompt.text == "second\nthird\nhalf"
        assert made.assistant.asked == ["first"]


async def test_they_return_to_their_chat_when_the_answer_fails(stage: Make) -> None:
    script, flag = gated(ModelError("it broke"))
    made = stage(script)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        chat = made.conversation.chat
        await pilot.press("ctrl+n")
        flag.set()
        await answered(pilot, made)
        assert made.conversation.prompt.text == ""
        made.conversation.open(chat)
        assert made.conversation.prompt.text == "second\nthird"


async def test_quitting_keeps_them_for_the_next_session(stage: Make) -> None:
    made = stage(HELD)
    async with made.app.run_test(size=(80, 24)) as pilot:
        await answering(pilot, made)
        chat = made.conversation.chat
        await pilot.press("ctrl+q")
    assert read_unsent(made.locations.unsent) == {chat: "second\nthird"}
