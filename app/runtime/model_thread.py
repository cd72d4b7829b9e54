"""The model's thread: loads a model, answers, stops, switches models and does idle work.

Every call returns a `concurrent.futures.Future`, so that the interface (`asyncio.wrap_future`),
`specchat ask` (plain blocking) and a server can use it. Events of an answer go to a callback.
Answers are written one at a time, in the order in which they were asked for; each is stopped by
its own future.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from app.config import Config, Options
from app.conversation.attachments import Attachment
from app.conversation.events import Event
from app.foreground import Foreground
from app.runtime.idle_work import IdleQueue
from datastores.errors import ModelError, SpecchatError

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.runtime.idle_work import SlicedWork
    from app.runtime.learning import Learner

CLOSE_TIMEOUT_S = 1.0
"""Longest time that `ModelThread.close` waits for a call into the model."""


class Answers(Protocol):
    """The part of `app.conversation.assistant.Assistant` that is used here."""

    def answer(
        self, chat: int, parent: int | None, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]: ...

    def edit(
        self, message: int, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]: ...

    def regenerate(self, answer: int) -> Generator[Event]: ...

    def resume(self, answer: int) -> Generator[Event]: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded model.

    Attributes:
        hint: what a person should know before the first question, in one line; may be empty.
        idle: its idle work, the most urgent first.
        learner: trains its draft model.
        switch_idle: starts, or stops at once, all background work.
        asks: placeholder of the prompt; empty for the default one.
        options, config: what it was opened with.
    """

    name: str
    hint: str
    assistant: Answers
    close: Callable[[], None]
    engine: Engine | None = None
    path: Path | None = None
    idle: Sequence[SlicedWork] = ()
    learner: Learner | None = None
    switch_idle: Callable[[bool], object] = lambda enabled: None
    asks: str = ""
    options: Options = field(default_factory=Options)
    config: Config = field(default_factory=Config)


OpenModel = Callable[[str | None], Model]
"""Opens a model by name or path, or for None the one of the command line or the settings."""

Begin = Callable[[Answers], Generator[Event]]
"""Begins a turn: a new question, an edited one, another answer, or the rest of one."""


class ModelThread:
    """Loads one model at a time and runs everything that uses it, one after the other.

    Args:
        foreground: is marked while somebody waits for this thread.

    Attributes:
        model: None while none is loaded.
    """

    def __init__(self, open_model: OpenModel, foreground: Foreground) -> None:
        self.model: Model | None = None
        self._foreground = foreground
        self._open_model = open_model
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._first: Future[None] | None = None
        self._answers: dict[Future[None], Flag] = {}  # waiting or current; whether to stop each
        self._lock = Lock()
        self._current: Flag | None = None
        self._work: Future[None] | None = None
        self._last: Future[None] | None = None
        self._idle = IdleQueue(self._executor, self._is_asked)

    def load(self) -> Future[None]:
        """Load the first model, unless this was called before.

        The future does not hold the model, which must be freed when another is loaded.

        Raises (in the future):
            SpecchatError: why it cannot be used.
        """
        if self._first is None:
            self._first = self._executor.submit(self._open, None)
        return self._first

    def switch(self, choice: str) -> Future[None]:
        """Close the model and load another, by name or path: never two in memory at once.

        Raises (in the future):
            ModelError: why it cannot be used; the previous one is loaded again if it can be.
        """
        return self._submit(lambda: self._switch(choice))

    def ask(self, begin: Begin, emit: Callable[[Event], object]) -> Future[None]:
        """Answer, after the answers asked for before; `emit` gets every event, on the model's
        thread, before the future is done.

        Loads the first model if none was loaded yet. The future is cancelled if `stop` is called
        before the answer begins.

        Raises (in the future):
            SpecchatError: why there is no answer, or only a part of it.
        """
        ended = self._foreground.begin()
        self.load()
        stopped = Flag()
        with self._lock:
            answer = self._executor.submit(self._run, begin, emit, stopped)
            self._answers[answer] = stopped
        answer.add_done_callback(lambda _: ended())
        answer.add_done_callback(self._answered)
        return answer

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being written or waits for its turn."""
        with self._lock:
            return not all(answer.done() for answer in self._answers)

    def between_answers(self, work: Callable[[Engine | None], None]) -> Future[None]:
        """Run `work` on the model's thread with the engine, if one is loaded.

        Raises (in the future):
            SpecchatError: as `work` does.
        """
        return self._submit(lambda: work(self.model.engine if self.model else None))

    def stop(self, answer: Future[None]) -> None:
        """Stop an answer that `ask` returned, waiting or current; what was generated is kept. From
        any thread."""
        if answer.cancel():
            return
        with self._lock:
            stopped = self._answers.get(answer)
            if stopped is None:
                return  # it is done
            stopped.set()
            if self.model is not None and self._current is stopped:
                self.model.assistant.stop()

    def touch(self) -> None:
        """Report user activity: training pauses at once. From any thread; takes microseconds."""
        if self.model is not None and self.model.learner is not None:
            self.model.learner.touch()

    def close(self) -> bool:
        """Stop everything and close the model; False if a call into the model does not return."""
        with self._foreground.work():
            return self._close()

    def _close(self) -> bool:
        with self._lock:
            answers = list(self._answers)
        for answer in answers:
            self.stop(answer)
        for pending in (self._work, self._idle.close()):
            if pending is not None:
                pending.cancel()
        if self._last is None:
            self._last = self._executor.submit(lambda: None)
            self._executor.shutdown(wait=False)
        if wait([self._last], CLOSE_TIMEOUT_S).not_done:
            return False
        if self.model is not None:
            self.model.close()
        return True

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        """Run `work` after what was asked for before; idle work ends its slice."""
        ended = self._foreground.begin()
        self._work = submitted = self._executor.submit(work)
        submitted.add_done_callback(lambda _: ended())
        return submitted

    def _is_asked(self) -> bool:
        return self.is_answering or self._foreground.busy()

    def _answered(self, answer: Future[None]) -> None:
        with self._lock:
            del self._answers[answer]
        self._idle.resume()

    def _open(self, choice: str | None) -> None:
        self.model = self._open_model(choice)
        self._idle.replace(self.model.idle)

    def _switch(self, choice: str) -> None:
        previous = self.model.path if self.model is not None else None
        try:
            self._close_model()
            self._open(choice)
            return
        except SpecchatError as error:
            # Only the message, as the error's traceback keeps alive what was loaded so far.
            reason = str(error)
        gc.collect()
        try:
            if previous is not None:
                self._open(str(previous))
        except SpecchatError as error:
            raise ModelError(
                f"{reason}; the previous model cannot be opened either: {error}"
            ) from error
        raise ModelError(reason)

    def _close_model(self) -> None:
        """Close the model and free its memory."""
        self._idle.replace(())
        model, self.model = self.model, None
        if model is not None:
            model.close()
        del model
        gc.collect()

    def _run(self, begin: Begin, emit: Callable[[Event], object], stopped: Flag) -> None:
        if self.model is None:
            raise ModelError("no model is loaded: choose one from the list of models")
        with self._lock:
            self._current = stopped
        try:
            with closing(begin(self.model.assistant)) as events:
                for event in events:
                    emit(event)
                    if stopped.is_set():
                        # The assistant ignores a stop from before its answer began.
                        self.model.assistant.stop()
        finally:
            with self._lock:
                self._current = None
