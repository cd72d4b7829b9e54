"""An engine that writes given texts, byte by byte, for any prompt; and an endpoint around one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from app.conversation.assistant import Assistant
from app.engine.engine import Engine
from app.foreground import Foreground
from app.locations import Locations
from app.runtime.model_thread import Model, ModelThread
from app.serve.access import read_token
from app.serve.run import served
from datastores.chats.history import History
from engines.chat_template.prompt_builder import Message, Tool
from engines.draft_tree import DraftTree
from engines.sampler import Sampling
from engines.target import ForwardOutput
from tests.app.scripted import scripted_engine
from tests.engines.scripted import WIDTH, ScriptedTarget
from tests.waiting import TIMEOUT_S, until

STOP, VOCABULARY = 256, 257
HOST = "127.0.0.1"


class ByteVocabulary:
    """A token for each byte, and one that ends an answer."""

    fingerprint = "bytes"
    size = VOCABULARY
    stops = frozenset({STOP})
    prompt_prefix = ()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The bytes of `text`."""
        return list(text.encode())

    def text(self, token: int) -> str:
        """The character of a byte."""
        return chr(token)

    def piece(self, token: int) -> bytes:
        """The byte of a token."""
        return b"" if token == STOP else bytes([token])


class SpeakingTarget(ScriptedTarget):
    """Writes `answer(prompt)`, whatever was drafted.

    Attributes:
        hold: if it is given, every pass waits for it.
        read: the numbers of tokens that were read for each prompt.
    """

    vocabulary_size = VOCABULARY

    def __init__(self, answer: Callable[[str], bytes], context_length: int = 4096) -> None:
        super().__init__(context_length=context_length)
        self.hold: Callable[[], object] = lambda: None
        self._answer = answer
        self._script: list[int] = []
        self._start = 0

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Take the tokens, and think of an answer."""
        self.hold()
        prompt = bytes(token for token in tokens if token < STOP).decode("utf-8", "replace")
        self._script, self._start = [*self._answer(prompt), STOP], len(tokens)
        self.tokens = list(tokens)
        self._last_row = self._at([0])
        yield len(tokens)

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """The rest of the answer, whatever was drafted."""
        self.hold()
        super().verify(tree)
        done = len(self.tokens) - self._start
        return self._at([done + depth + 1 for depth in tree.depths()])

    def _at(self, places: Sequence[int]) -> ForwardOutput:
        logits = np.zeros((len(places), VOCABULARY), np.float32)
        for row, place in enumerate(places):
            logits[row, self._script[min(place, len(self._script) - 1)]] = 9.0
        return ForwardOutput(logits, logits[:, :WIDTH].copy())


def render(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
    """Each message on a line with its role."""
    lines = [f"{message.role}: {message.as_text.content}\n" for message in messages]
    return list("".join(lines).encode())


def speaking_engine(folder: Path, answer: Callable[[str], bytes]) -> Engine:
    """An engine that answers each prompt with `answer(prompt)`."""
    engine = scripted_engine(folder, max_tokens=2000, sampling=Sampling(temperature=0.0))
    return replace(
        engine,
        name="speaking",
        target=SpeakingTarget(answer),
        vocabulary=ByteVocabulary(),
        render=render,
        render_text=ByteVocabulary().encode,
    )


class Client(httpx2.Client):
    """A client of one endpoint that shows the token.

    Attributes:
        url: the base URL.
        token: the token.
        stop: ends the endpoint.
    """

    def __init__(self, url: str, token: str, stop: Callable[[], None]) -> None:
        self.url, self.token, self.stop = url, token, stop
        authorization = {"Authorization": f"Bearer {token}"}
        super().__init__(headers=authorization, timeout=TIMEOUT_S, trust_env=False)
        self.base_url = httpx2.URL(url.removesuffix("/v1"))

    def ask(self, content: str, **fields: Any) -> httpx2.Response:
        """The response to a chat of one message."""
        body = {"messages": [{"role": "user", "content": content}], **fields}
        return self.post("/v1/chat/completions", json=body)


@contextmanager
def endpoint(engine: Engine, locations: Locations, history: History) -> Iterator[Client]:
    """A client of an endpoint around `engine`."""
    assistant = Assistant(engine, history.new_connection())
    model = Model(engine.name, "", assistant, assistant.history.close, engine, engine.path)
    thread = ModelThread(lambda _: model, Foreground(locations.foreground))
    with served(thread, locations, HOST, 0) as running:
        serving = threading.Thread(target=running.run)
        serving.start()
        with Client(running.url, read_token(locations.token), running.stop) as client:
            until(lambda: reached(client))
            yield client
        running.stop()
        serving.join()


def reached(client: Client) -> bool:
    """Whether the endpoint answers."""
    try:
        return client.get("/health").status_code == 200
    except httpx2.ConnectError:
        return False
