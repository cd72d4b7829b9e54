"""The conversation behind the screen: one model, loaded and asked on one thread of its own.

Owns that thread and the turn at hand. A message sent while the model is still loading waits in the
thread's queue, because loading stands there before it. Knows no widgets; the screen is told of
events through an outbox, and of the rest by what it awaits.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.conversation.events import Event
from app.interface.chat.event_stream import EventQueue
from app.interface.transcript.answer import Answer
from app.interface.transcript.entries import Question
from app.runtime.idle_queue import Idling
from datastores.chats.records import StoredMessage
from datastores.errors import ModelError, SpecchatError

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.runtime.idle import IdleWork

PATIENCE = 1.0
"""Seconds that leaving waits for the model to stop where it is."""


class Answers(Protocol):
    """What the conversation asks of `app.conversation.assistant.Assistant`."""

    def answer(self, chat: int, parent: int | None, text: str) -> Iterator[Event]: ...

    def edit(self, message: int, text: str) -> Iterator[Event]: ...

    def regenerate(self, answer: int) -> Iterator[Event]: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model.

    Attributes:
        name: for people.
        hint: what a person should know before the first question, in a line; may be empty.
        answers: who answers with it.
        close: called at the end.
        engine: what it runs on, where stores have to forget; None where there is none.
        path: its file; None where there is none.
        idle: what it does while nobody asks; None where there is nothing.
    """

    name: str
    hint: str
    answers: Answers
    close: Callable[[], None]
    engine: Engine | None = None
    path: Path | None = None
    idle: IdleWork | None = None


OpenModel = Callable[[str | None], Model]
"""Opens a model by name or path; for None the one chosen on the command line or in the settings."""


@dataclass(slots=True)
class Turn:
    """A question on its way to an answer.

    Attributes:
        parent: the message it follows.
        text: what was asked, as it was typed; empty where a stored question is answered again.
        begin: asks it.
        before: the last message on the thread before it.
        edited: the question this is another version of; None for any other turn.
    """

    chat: int
    parent: int | None
    text: str
    question: Question
    answer: Answer
    begin: Callable[[Answers], Iterator[Event]]
    before: int | None = None
    edited: StoredMessage | None = None


class ModelThread:
    """Loads a model, asks it, stops it, puts another in its place.

    Attributes:
        turn: the turn at hand; None between turns.
        model: None while none is loaded.
    """

    def __init__(self, open_model: OpenModel, outbox: EventQueue) -> None:
        self.turn: Turn | None = None
        self.model: Model | None = None
        self._open_model = open_model
        self._outbox = outbox
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._last: Future[None] | None = None
        self._rest: Future[None] | None = None
        self._idling = Idling(self._thread, lambda: self.turn is not None)
        self._stopped = False
        self._begun = asyncio.Event()

    async def load(self) -> Model:
        """Load the model.

        Raises:
            SpecchatError: why it cannot be used.
        """
        self._last = self._thread.submit(self._load, None)
        self._begun.set()
        await asyncio.wrap_future(self._last)
        assert self.model is not None
        return self.model

    async def switch(self, choice: str) -> Model:
        """Let the model go and load another, by name or path: never two in memory at once.

        Raises:
            ModelError: why it cannot be used; then the one before is loaded again, if it can be.
        """
        self._last = self._thread.submit(self._switch, choice)
        await asyncio.wrap_future(self._last)
        assert self.model is not None
        return self.model

    async def ask(self, turn: Turn) -> None:
        """Answer `turn`; its events go to the outbox. Returns when all of them are there.

        A turn that is stopped while it waits for the model returns without any.

        Raises:
            SpecchatError: why there is no answer, or no whole one.
        """
        self.turn, self._stopped = turn, False
        try:
            await self._begun.wait()  # one can type before the first frame is drawn
            if not self._stopped:
                await self._see_through(turn)
        finally:
            self.turn = None
            self._idling.go_on()

    async def _see_through(self, turn: Turn) -> None:
        self._last = self._thread.submit(self._answer, turn)
        try:
            await asyncio.wrap_future(self._last)
        except asyncio.CancelledError:
            if not self._last.cancelled():
                raise  # not the turn but the screen that awaits it is being stopped

    async def between_answers(self, work: Callable[[Engine | None], None]) -> None:
        """Run `work` on the model's thread with the engine, if one is loaded.

        Raises:
            SpecchatError: as `work` does.
        """
        self._last = self._thread.submit(lambda: work(self.model.engine if self.model else None))
        await asyncio.wrap_future(self._last)

    def stop(self) -> None:
        """Stop the turn at hand, wherever it is; what was written is kept."""
        self._stopped = True
        waiting = self.turn is not None and self._last is not None and self._last.cancel()
        if self.model is not None and not waiting:
            self.model.answers.stop()

    def leave(self) -> bool:
        """Stop for good; whether the thread came to rest. If it did not, it is inside the model."""
        self.stop()
        for waiting in (self._last, self._idling.end()):
            if waiting is not None:
                waiting.cancel()
        if self._rest is None:
            self._rest = self._thread.submit(lambda: None)
            self._thread.shutdown(wait=False)
        if wait([self._rest], PATIENCE).not_done:
            return False
        if self.model is not None:
            self.model.close()
        return True

    def _load(self, choice: str | None) -> None:
        self.model = self._open_model(choice)
        self._idling.take(self.model.idle)

    def _switch(self, choice: str) -> None:
        before = self.model.path if self.model is not None else None
        try:
            self._let_go()
            self._load(choice)
            return
        except SpecchatError as error:
            # The words alone: the error holds the frames that hold what was loaded so far.
            reason = str(error)
        gc.collect()
        try:
            if before is not None:
                self._load(str(before))
        except SpecchatError as error:
            raise ModelError(f"{reason}; nor can the model before be opened: {error}") from error
        raise ModelError(reason)

    def _let_go(self) -> None:
        """Close the model; its memory is free afterwards."""
        self._idling.take(None)
        model, self.model = self.model, None
        if model is not None:
            model.close()
        del model
        gc.collect()

    def _answer(self, turn: Turn) -> None:
        if self.model is None:
            raise ModelError("there is no model to ask: choose one from the list of models")
        for event in turn.begin(self.model.answers):
            self._outbox.put(event)
            if self._stopped:
                # Said before the answer began, it was not heard.
                self.model.answers.stop()
