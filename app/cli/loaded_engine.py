"""The engine of one command: loaded for its answer, and closed after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue

from app.cli.stores import open_history
from app.conversation.events import Event, Warned
from app.foreground import Foreground
from app.indexing.indexer import catch_up
from app.runtime.command_answer import answer_request, new_errors
from app.runtime.model_thread import ModelThread
from app.runtime.open_model import open_for_one_answer
from app.runtime.wire import AskRequest
from datastores.errors import StoreError


class LoadedEngine:
    """Loads the model that a request asks for, and answers with it."""

    def __init__(self, request: AskRequest) -> None:
        self._request = request
        self._thread: ModelThread | None = None
        self._answer: Future[None] | None = None

    def events(self) -> Generator[Event]:
        """Load the model, answer and close it: what is learned is saved and the chat indexed.

        Raises:
            SpecchatError: the model cannot be used, or as for `answer_request`.
        """
        request = self._request
        with open_history(request.locations) as history:
            load = partial(open_for_one_answer, request.options, request.locations, history)
            thread = ModelThread(
                lambda _: load(request.docs), Foreground(request.locations.foreground)
            )
            thread.load().result()
            assert thread.model is not None
            engine = thread.model.engine
            assert engine is not None
            before = history.last_message()
            yield from self._answered(thread)
            reported = tuple(map(str, engine.errors))
            yield from _warned(thread.close, reported)
            reported = yield from new_errors(engine, reported)  # until then, answers are recorded
            if not request.unsaved:
                index = partial(catch_up, request.locations, engine.path, engine.vocabulary)
                yield from _warned(partial(index, engine.crest_bytes, before), reported)

    def stop(self) -> None:
        """Stop the answer; what was generated is kept."""
        if self._thread is not None and self._answer is not None:
            self._thread.stop(self._answer)

    def _answered(self, thread: ModelThread) -> Generator[Event]:
        """The events of the answer, as they come from the model's thread."""
        events = SimpleQueue[Event | None]()
        begin = partial(answer_request, request=self._request)
        self._thread, self._answer = thread, thread.ask(begin, events.put)
        self._answer.add_done_callback(lambda _: events.put(None))
        while (event := events.get()) is not None:
            yield event
        self._answer.result()


def _warned(work: Callable[[], object], reported: Sequence[str]) -> Generator[Warned]:
    """Do `work` after the answer; a store's failure is a warning, unless it was `reported`."""
    try:
        work()
    except StoreError as error:
        if str(error) not in reported:
            yield Warned(str(error))
