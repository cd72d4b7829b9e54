"""Answers of the model's thread as asynchronous events, one answer at a time.

The model's thread answers in the order of arrival. A request that is dropped while it waits is
never begun; one that is being answered ends at the next step. Events wait in memory for a client
that reads slowly, so that it keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Event as Flag
from time import monotonic

from app.conversation.events import Event, Finished
from app.conversation.programs import ProgramAnswers, ProgramRequest
from app.engine.engine import Engine
from app.runtime.model_thread import ModelThread
from app.serve.errors import RequestError

MAX_WAITING = 32
"""Most requests that wait for the one that is being answered."""
STOPPED = "the server is being stopped"
FIRST_WAIT_S = 5.0
"""How long a refused request should wait before any answer has been timed."""
TIMED_ANSWERS = 8
"""Latest answers whose time tells how long another one may take."""


class Answering:
    """The queue of requests to one model.

    Attributes:
        active: number of requests that wait or are being answered.
    """

    def __init__(
        self,
        model_thread: ModelThread,
        answers: ProgramAnswers,
        prune: Callable[[Engine | None], None],
    ) -> None:
        """`prune` is called between two answers when more are kept than may be."""
        self.active = 0
        self._stops: set[Flag] = set()
        self._stopped = False
        self._prune = prune
        self._model_thread = model_thread
        self._answers = answers
        self._seconds: deque[float] = deque(maxlen=TIMED_ANSWERS)

    def stop(self) -> None:
        """Stop all answers and accept no more, as the server is being stopped."""
        self._stopped = True
        for stop in self._stops:
            stop.set()

    async def events(
        self, request: ProgramRequest, prepare: Callable[[Event], Event] = lambda event: event
    ) -> AsyncGenerator[Event]:
        """The events of an answer, each as `prepare` makes it on the model's thread. Closing the
        generator stops it.

        Raises:
            RequestError: too many requests wait.
            SpecchatError: why there is no answer, or only a part of it.
        """
        if self._stopped:
            raise RequestError(STOPPED, 503)
        if self.active > MAX_WAITING:
            raise self._too_many()
        loop, stop = asyncio.get_running_loop(), Flag()
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        began = monotonic()

        def post(call: Callable[..., object], *arguments: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server was stopped
                loop.call_soon_threadsafe(call, *arguments)

        def emit(event: Event) -> None:
            post(events.put_nowait, prepare(event))

        def done(_: Future[None]) -> None:
            post(self._done, events, began)

        self.active += 1
        self._stops.add(stop)
        answer = self._model_thread.ask(lambda _: self._answers.answer(request, stop), emit)
        answer.add_done_callback(done)
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, Finished) and self._stopped:
                    raise RequestError(STOPPED, 503)
                yield event
            answer.result()
        except CancelledError as error:  # the model's thread is being closed
            raise RequestError(STOPPED, 503) from error
        finally:
            stop.set()
            self._stops.discard(stop)
            answer.cancel()

    def _done(self, events: asyncio.Queue[Event | None], began: float) -> None:
        self.active -= 1
        self._seconds.append(monotonic() - began)
        events.put_nowait(None)
        if self._answers.kept.excess > 0:
            self._model_thread.between_answers(self._prune)

    def _too_many(self) -> RequestError:
        """The refusal of a request; a program that waits that long probably gets an answer."""
        mean = sum(self._seconds) / len(self._seconds) if self._seconds else FIRST_WAIT_S
        return RequestError(
            f"{self.active} requests are waiting: try again later",
            429,
            code="rate_limit_exceeded",
            headers={"Retry-After": str(max(1, math.ceil(mean)))},
        )
