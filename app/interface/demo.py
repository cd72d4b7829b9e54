"""The demonstration in the interface: asks, imports, asks again, and reports the gain.

Drives the same conversation and import that a person would. Esc, a question of the person's own or
leaving ends it. The stage belongs to `app.runtime.demo`, every figure to the session's statistics.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.app import App

from app.conversation.session_statistics import SessionStatistics
from app.interface.terminal import run_in_terminal
from app.runtime.demo import AFTER, BEFORE, DemoStage, MeasuredAnswer, conclusion
from datastores.errors import InputError
from engines.child_process import child_environment

if TYPE_CHECKING:
    from app.interface.screen import ChatScreen

POLL_S = 0.05
READING_S = 8.0
"""Time to read what the demonstration is."""
PAUSE_S = 1.0
"""Time to read the panel between two answers."""
INDEXING_TIMEOUT_S = 30.0
"""How long the import may take to be ready for drafts."""
RESULT_TIMEOUT_S = 120.0
"""How long the conclusion is shown."""
ELSEWHERE = "This terminal cannot be suspended. Run `specchat demo` in another one."
FAILED = "The demo failed. Run `specchat demo` in a shell to see why."


class Demo:
    """One run of the demonstration."""

    def __init__(self, screen: ChatScreen, stats: SessionStatistics, stage: DemoStage) -> None:
        self._screen = screen
        self._stats = stats
        self._stage = stage

    async def run(self) -> None:
        """Run to the end, unless the person takes over."""
        await _until(lambda: self._screen.conversation.model_thread.model is not None)
        await asyncio.sleep(READING_S)
        before = await self._ask(BEFORE)
        if before is None:
            return
        await self._import()
        after = await self._ask(AFTER)
        if after is not None:
            said = f"{conclusion(before, after)} Now ask it something yourself."
            self._screen.notify(said, markup=False, timeout=RESULT_TIMEOUT_S)

    async def _ask(self, questions: Sequence[str]) -> list[MeasuredAnswer] | None:
        """Ask in turn; None if the person stopped an answer or asked something else."""
        answers = []
        conversation = self._screen.conversation
        for question in questions:
            await asyncio.sleep(PAUSE_S)
            if conversation.turn is not None:
                return None
            if not await self._answered(question):
                return None
            answers.append(self._measured())
        return answers

    async def _answered(self, question: str) -> bool:
        """Send `question` and wait for its answer; False if the person took over."""
        conversation = self._screen.conversation
        conversation.send(question)
        turn = conversation.turn
        await _until(lambda: conversation.turn is not turn)
        return turn is not None and not turn.stopped

    def _measured(self) -> MeasuredAnswer:
        """What the last answer took."""
        answer, taken = self._stats.answer, self._stats.throughput
        return MeasuredAnswer(
            answer.call_tokens, answer.target_calls, taken.seconds, taken.plain_seconds
        )

    async def _import(self) -> None:
        """Import the file, and wait until it is ready for drafts."""
        task = self._screen.import_task
        task.begin(str(self._stage.file))
        await _until(lambda: not task.state.running)
        await _until(lambda: task.state.indexed_tokens > 0, INDEXING_TIMEOUT_S)


def show_demo(app: App[object]) -> None:
    """Run the demonstration in this terminal, and come back after it.

    In a process of its own: it shares no data with this one.
    """
    command = [sys.executable, "-P", "-m", "app", "demo"]
    try:
        code = run_in_terminal(app, command, child_environment())
    except InputError:
        app.notify(ELSEWHERE, severity="warning", markup=False)
        return
    if code:
        app.notify(FAILED, severity="error", markup=False)


async def _until(condition: Callable[[], object], timeout: float = float("inf")) -> None:
    """Wait for `condition`, at most `timeout` seconds."""
    waited = 0.0
    while not condition() and waited < timeout:
        await asyncio.sleep(POLL_S)
        waited += POLL_S
