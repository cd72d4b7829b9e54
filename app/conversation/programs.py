"""Answers to programs: a whole conversation or a text in, events out.

A program sends all of its conversation with each request, so nothing here is looked up in the
history. The KV cache keeps several conversations: one that another interrupts is parked, and read
again only where it is new.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Any

from app.conversation.context_window import overflow
from app.conversation.events import Event
from app.conversation.generation import GenerationRequest, generate
from app.conversation.privacy import ChatIsolation
from app.conversation.statistics import Statistics
from app.engine.engine import Engine
from datastores.chats.history import History
from datastores.errors import InputError, ModelError
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message, Tool
from engines.chat_template.tool_calls import MARKS
from engines.target import ParkingTarget

REQUESTED = "the request"
"""What sampling settings belong to, in errors."""
GENERATION_PROMPT = 24
"""Tokens at the end of a prompt that its continuation may not repeat: templates put something else
before a finished answer than before a new one."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What a program asks for.

    Attributes:
        messages: the last of them is answered.
        text: a text to continue instead, in which control tokens are recognised.
        tools: those that the model may call.
        sampling: settings that differ from the defaults, with `MAX_TOKENS`.
        stop: texts that end the answer.
        logits: whether every step has the logits of its tokens.
        store: whether the answer may be kept to draft and learn from; None for the setting.
    """

    messages: Sequence[Message] = ()
    text: str = ""
    tools: Sequence[Tool] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    logits: bool = False
    store: bool | None = None


class ProgramAnswers:
    """Answers programs with one loaded model, one at a time, on the model's thread."""

    def __init__(self, engine: Engine, history: History) -> None:
        self.engine = engine
        self._isolation = ChatIsolation(engine, history.name)
        self._prompt: Sequence[int] = ()  # of the answer before

    def answer(self, request: ProgramRequest, stop: Flag) -> Generator[Event]:
        """Answer `request`; ends with `Finished`. Setting `stop` ends it at the next step.

        Raises:
            InputError: a setting is invalid, the model cannot call tools,
                or its chat template refuses the conversation.
            ContextOverflowError: the prompt does not fit; nothing of it is left out.
        """
        prompt = self._render(request)
        chat = request.text == ""
        stops = (*request.stop, *(self.engine.stop if chat else ()))
        generation = GenerationRequest(
            request.messages,
            self.engine.defaults.draw(request.sampling, REQUESTED),
            self.engine.defaults.end(request.sampling, stops, REQUESTED),
            prompt=prompt,
            marks=MARKS if request.tools else (),
            logits=request.logits,
        )
        self._park(prompt)
        engine = self._isolation.unsaved_engine()
        yield from generate(engine, generation, Statistics(), stop)

    def _render(self, request: ProgramRequest) -> list[int]:
        if request.messages:
            try:
                prompt = self.engine.render(request.messages, request.tools)
            except ModelError as error:  # this conversation's: others may be rendered
                raise InputError(str(error)) from error
        else:
            prompt = self.engine.render_text(request.text)
        if len(prompt) >= self.engine.target.context_length:
            raise overflow(self.engine, len(prompt))
        return prompt

    def _park(self, prompt: Sequence[int]) -> None:
        """Park the cached text unless `prompt` continues it."""
        continued = common_prefix(self._prompt, prompt)
        target = self.engine.target
        if isinstance(target, ParkingTarget) and continued + GENERATION_PROMPT < len(self._prompt):
            with self.engine.busy:
                target.park()
        self._prompt = prompt
