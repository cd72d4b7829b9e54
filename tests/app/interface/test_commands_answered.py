"""The interface answers commands: it listens, shows that it does, and the person's turn waits."""

from __future__ import annotations

import asyncio
import sys

import pytest

from app.config import Options
from app.interface.chat.conversation import WAITING_FOR_COMMAND
from app.runtime.engine_client import open_engine, sockets
from app.runtime.wire import AskRequest
from tests.app.interface.conftest import PLAIN, Make, answered, ready, send, shown, until


@pytest.mark.skipif(sys.platform == "win32", reason="Python has no Unix sockets there")
async def test_it_listens_while_it_runs_and_declines_what_it_cannot_answer(stage: Make) -> None:
    made = stage(PLAIN, listens=True)
    request = AskRequest(Options(), made.locations, "How do I use tar?")
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        assert len(sockets(made.locations)) == 1
        # The scripted model has no engine.
        assert await asyncio.to_thread(open_engine, request) is None
    assert made.app.leave()
    assert sockets(made.locations) == []


async def test_it_says_so_where_it_cannot_listen(stage: Make) -> None:
    made = stage(PLAIN, listens=True)
    made.locations.sockets.write_text("a file in its place")
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        (notice,) = made.app._notifications
        assert notice.message.startswith("`specchat ask` cannot use this model and loads its own:")
        await send(pilot, made, "hello")
        await until(pilot, lambda: "an answer of some words" in shown(made))
        await answered(pilot, made)


async def test_commands_are_shown_and_the_person_s_question_waits(stage: Make) -> None:
    made = stage(PLAIN)
    async with made.app.run_test() as pilot:
        await ready(pilot, made)
        topbar = made.conversation.topbar
        made.app.commands_answered(2)
        await until(pilot, lambda: "answering 2 commands" in topbar.render().plain)
        made.app.commands_answered(1)
        await until(pilot, lambda: "answering a command" in topbar.render().plain)
        statuses = list[str]()
        begin = made.conversation._stream.begin

        def spy(answer: object) -> None:
            statuses.append(answer.status)  # type: ignore[attr-defined]
            begin(answer)  # type: ignore[arg-type]

        made.conversation._stream.begin = spy  # type: ignore[method-assign]
        await send(pilot, made, "hello")
        await until(pilot, lambda: "an answer of some words" in shown(made))
        assert statuses == [WAITING_FOR_COMMAND]
        made.app.commands_answered(0)
        await until(pilot, lambda: "command" not in topbar.render().plain)
