"""The demonstration in the interface: asks, imports, asks again, and reports the gain.

Drives the same conversation and import as a user, with captions above the prompt. Esc, a question
from the user, or quitting ends it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from time import monotonic

from textual.app import App
from textual.containers import Center
from textual.widgets import Static

from app.conversation.session_statistics import SessionStatistics
from app.interface.chat.conversation import Conversation
from app.interface.imports.tasks import ImportTask
from app.interface.keymap import keymap_of
from app.interface.terminal import run_in_terminal
from app.runtime.demo import AFTER, BEFORE, INTRODUCTION, DemoStage, MeasuredAnswer, conclusion
from datastores.errors import InputError
from engines.child_process import child_environment

POLL_S = 0.05
READING_S = 8.0
"""Time to read the introduction."""
PAUSE_S = 1.0
"""Time to read the panel between two answers."""
INDEXING_TIMEOUT_S = 30.0
"""Maximum wait until the import is indexed for drafting."""

FIRST = (
    "Demo 1/3 · Three questions. Nothing here holds their answers yet, so few words can be drafted."
)
SECOND = "Demo 2/3 · Importing commands.md, a file of commands, to draft from it."
THIRD = (
    "Demo 3/3 · Five other questions, whose answers are in that file. {tint} shows which words"
    " were drafted from it."
)
NEXT = "Now ask something yourself; {quit} quits."
TAKEN_OVER = "The demo has ended. Ask on: nothing is kept. {quit} quits."
NO_MODEL = "The demo cannot run: its model cannot be made. {quit} quits."
ELSEWHERE = "This terminal cannot be suspended. Run `specchat demo` in another one."
FAILED = "The demo failed. Run `specchat demo` in a shell to see why."


class TakenOverError(Exception):
    """The user pressed Esc or asked something, or there is no model: the demonstration ends."""


class DemoCaption(Static):
    """The caption, above the prompt, where it covers nothing."""

    def __init__(self) -> None:
        super().__init__(f"{INTRODUCTION} Esc ends the demo.", markup=False)


class Demo:
    """One run of the demonstration."""

    def __init__(
        self,
        conversation: Conversation,
        import_task: ImportTask,
        stats: SessionStatistics,
        stage: DemoStage,
    ) -> None:
        self._conversation = conversation
        self._import_task = import_task
        self._stats = stats
        self._stage = stage
        self._caption = DemoCaption()
        self._requests = 0

    async def run(self) -> None:
        """Run to the end, unless the user takes over."""
        conversation = self._conversation
        self._requests = conversation.requests
        await conversation.mount(Center(self._caption), after=conversation.transcript)
        try:
            self._say(await self._play())
        except TakenOverError:
            self._say(NO_MODEL if conversation.topbar.failed else TAKEN_OVER)

    async def _play(self) -> str:
        """Ask, import and ask again; returns the conclusion."""
        conversation = self._conversation
        shown = monotonic()
        await self._until(lambda: conversation.model_thread.model is not None)
        await self._wait(READING_S - (monotonic() - shown))
        self._say(FIRST)
        before = [await self._answer(question) for question in BEFORE]
        self._say(SECOND)
        await self._import()
        self._say(THIRD)
        after = [await self._answer(question) for question in AFTER]
        return f"{conclusion(before, after)} {NEXT}"

    def _say(self, text: str) -> None:
        self._caption.update(keymap_of(self._conversation).fill(text))

    async def _answer(self, question: str) -> MeasuredAnswer:
        conversation = self._conversation
        await self._wait(PAUSE_S)
        self._requests += 1
        conversation.send(question)
        turn = conversation.turn
        await self._until(lambda: conversation.turn is not turn)
        answer, taken = self._stats.answer, self._stats.throughput
        return MeasuredAnswer(answer.step_tokens, answer.steps, taken.seconds, taken.plain_seconds)

    async def _import(self) -> None:
        task = self._import_task
        task.subscribe(_ignore)  # the caption replaces the notification
        task.begin(str(self._stage.file))
        try:
            await self._until(lambda: not task.state.running)
        finally:
            task.unsubscribe(_ignore)
        await self._until(lambda: task.state.indexed_tokens > 0, INDEXING_TIMEOUT_S)

    async def _wait(self, seconds: float) -> None:
        await self._until(lambda: False, seconds)

    async def _until(self, condition: Callable[[], object], timeout: float = float("inf")) -> None:
        """Wait for `condition`, at most `timeout` seconds.

        Raises:
            TakenOverError: the user took over meanwhile, or there will be no model.
        """
        end = monotonic() + timeout
        while not condition() and monotonic() < end and not self._is_over:
            await asyncio.sleep(POLL_S)
        if self._is_over:
            raise TakenOverError

    @property
    def _is_over(self) -> bool:
        conversation = self._conversation
        return conversation.requests > self._requests or conversation.topbar.failed


def _ignore() -> None:
    """Listen to the import without showing it."""


def show_demo(app: App[object]) -> None:
    """Suspend the interface while the demonstration runs in a process and data of its own."""
    command = [sys.executable, "-P", "-m", "app", "demo"]
    try:
        code = run_in_terminal(app, command, child_environment())
    except InputError:
        app.notify(ELSEWHERE, severity="warning", markup=False)
        return
    if code:
        app.notify(FAILED, severity="error", markup=False)
