"""Opens the model and serves it until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from app.config import Options, load_config
from app.conversation.assistant import Assistant
from app.conversation.programs import ProgramAnswers
from app.engine.engine import Engine
from app.foreground import Foreground
from app.locations import Locations
from app.runtime.deletion import delete_program_answers
from app.runtime.engine_socket import EngineSocket
from app.runtime.model_thread import ModelThread
from app.runtime.open_model import open_model
from app.serve.access import AccessControl, read_token
from app.serve.answering import Answering
from app.serve.embedding import Embeddings
from app.serve.http_server import QuietServer, listen
from app.serve.server import Endpoint
from datastores.chats.history import History
from datastores.errors import SpecchatError

KEPT_SHARE = 0.8
"""Share of the most bytes of answers that is left when there are more: deleting takes seconds."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model that is about to be served.

    Attributes:
        url: the base URL, as clients call it.
    """

    engine: Engine
    url: str
    _server: QuietServer
    _listener: socket.socket

    def run(self) -> None:
        """Serve until `stop`, or a signal to end the process."""
        asyncio.run(self._server.serve([self._listener]))

    def stop(self) -> None:
        """End `run`, on any thread."""
        self._server.stop()


@contextmanager
def served(
    thread: ModelThread, locations: Locations, host: str, port: int
) -> Iterator[ServedModel]:
    """The model of `thread`, listening at an address. Closes the thread in the end.

    Raises:
        SpecchatError: the model cannot be used, or the address.
    """
    with ExitStack() as parts:
        listener = parts.enter_context(listen(host, port))
        token = read_token(locations.token)
        parts.callback(thread.close)
        thread.load().result()
        model = thread.model
        assert model is not None
        assert model.engine is not None
        assert isinstance(model.assistant, Assistant)
        embeddings = Embeddings(locations)
        parts.callback(embeddings.close)
        history = model.assistant.history
        most = load_config(locations.settings).programs.max_bytes
        answers = ProgramAnswers(model.engine, history, most)
        prune = partial(_prune, answers, history, locations)
        thread.between_answers(prune).result()
        answering = Answering(thread, answers, prune)
        endpoint = Endpoint(model.engine, answering, embeddings)
        server = QuietServer(AccessControl(endpoint.app(), token, [host]), answering.stop)
        commands = EngineSocket(locations, thread)
        with model.engine.resources.collecting_errors():
            commands.open()
        parts.callback(commands.close)
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}/v1"
        yield ServedModel(model.engine, url, server, listener)


def _prune(
    answers: ProgramAnswers, history: History, locations: Locations, engine: Engine | None
) -> None:
    """Delete the oldest answers to programs if more are kept than may be."""
    if engine is None or answers.kept.excess <= 0:
        return
    with engine.resources.collecting_errors():
        left = int(answers.kept.max_bytes * KEPT_SHARE)
        delete_program_answers(history, locations, engine, left)
        answers.kept.recount()


def model_thread(
    options: Options,
    locations: Locations,
    history: History,
    report: Callable[[SpecchatError], object],
) -> ModelThread:
    """The thread of the chosen model with its background work.

    Args:
        report: called with errors of that work and of the stores, on any thread.
    """

    def note(_: object, error: SpecchatError | None) -> None:
        if error is not None:
            report(error)

    return ModelThread(
        lambda _: open_model(options, locations, history, note, note, note),
        Foreground(locations.foreground),
    )
