"""Answers to programs: a whole conversation or a text in, events out.

The rules are those of a chat: nothing is drafted from, or learned from, a private conversation, one
with a secret, or a loop. Unlike in a chat nothing of a conversation is left out, and an answer that
its program did not wait for is not kept.

Several conversations keep their state in memory: one that another interrupts is parked, and is read
again only where it is new.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event as Flag
from typing import Any

from app.conversation.context_window import overflow
from app.conversation.events import Event, Finished, Wrote
from app.conversation.generation import FINISH_INTERRUPTED, GenerationRequest, generate
from app.conversation.privacy import ChatIsolation
from app.conversation.program_history import (
    ProgramHistory,
    StoredAnswer,
    conversation_keys,
)
from app.conversation.statistics import Statistics
from app.engine.engine import Engine
from datastores.chats import records
from datastores.chats.history import History
from datastores.chats.usage import MODEL_KEY
from datastores.errors import InputError, ModelError
from datastores.redaction import redact
from engines.chat_template.prompt_builder import Message, Tool, ToolCall
from engines.chat_template.reasoning import marked_piece, prompt_opening, split_reasoning
from engines.chat_template.tool_calls import (
    MARKS,
    CallStream,
    Obeys,
    Takes,
    ends_call,
    is_marked,
    taker,
)
from engines.sampler import Constrain
from engines.target import ParkingTarget, Vocabulary

REASONS = (
    "this model reasons before it answers: leave out response_format, and tool_choice other than"
    " auto"
)
REQUESTED = "the request"
"""What sampling settings belong to, in errors."""
CALL_ENDS = (b"}", b"]", b">", b"`")
"""What calls end with, in all forms."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What a program asks for.

    Attributes:
        messages: the last of them is answered.
        text: a text to continue instead, in which control tokens are recognised.
        tools: those that the model may call.
        sampling: settings that differ from the defaults, with `MAX_TOKENS`.
        stop: texts that end the answer.
        logits: whether every step has the logits of its tokens; nothing is then learned from them.
        store: whether the answer may be kept, if the settings allow it.
        single_call: whether the first call of a tool ends the answer.
        constrain: restricts the tokens that are drawn; None for no restriction.
        free: whether that leaves text before a call alone.
        strict: whether arguments obey, for the tools that are called only so.
    """

    messages: Sequence[Message] = ()
    text: str = ""
    tools: Sequence[Tool] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    logits: bool = False
    store: bool = True
    single_call: bool = False
    constrain: Constrain | None = None
    free: bool = False
    strict: Mapping[str, Obeys] = field(default_factory=dict)

    @property
    def takes(self) -> Takes:
        """Which calls count."""
        return taker(self.tools, self.strict)

    @property
    def thread(self) -> Sequence[Message]:
        """The messages, or the text as one."""
        return self.messages or [Message(records.USER, self.text)]


@dataclass(slots=True)
class _Given:
    """An answer while it is generated: its text, its token ids and why it ended."""

    statistics: Statistics
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    finish: str = FINISH_INTERRUPTED

    def stored(self, engine: Engine, generation: GenerationRequest) -> StoredAnswer:
        """The answer as it is stored."""
        seed = {"seed": generation.sampling.seed, MODEL_KEY: engine.name}
        return StoredAnswer(
            self.text,
            self.tokens,
            engine.target.fingerprint,
            engine.vocabulary.fingerprint,
            self.finish,
            {**self.statistics.figures(), **seed},
        )


class ProgramAnswers:
    """Answers programs with one loaded model, one at a time, on the model's thread.

    Attributes:
        kept: the answers that are kept.
    """

    def __init__(self, engine: Engine, history: History, max_bytes: int) -> None:
        """Keep at most `max_bytes` of answers in `history`; none for 0."""
        self.engine = engine
        self.kept = ProgramHistory(history, max_bytes)
        self._isolation = ChatIsolation(engine, history.name)
        self._cached = b""  # the key of the cached conversation; empty for a text

    def answer(self, request: ProgramRequest, stop: Flag) -> Generator[Event]:
        """Answer `request`; ends with `Finished`. Setting `stop` ends it at the next step.

        Raises:
            InputError: a setting is invalid, the model cannot call tools, or its chat template
                refuses the conversation.
            ContextOverflowError: the prompt does not fit; nothing of it is left out.
        """
        generation = self._generation(request)
        self._park(request)
        chat = self._chat(request)
        engine = self._engine(request, chat)
        given = _Given(Statistics())
        try:
            with closing(generate(engine, generation, given.statistics, stop)) as events:
                for event in events:
                    if isinstance(event, Wrote):
                        given.text += "".join(piece.text for piece in event.pieces)
                        given.tokens += event.step.tokens
                    elif isinstance(event, Finished):
                        given.finish = event.finish
                    yield event
        finally:
            self._end(request, generation, chat, engine, given)

    def _generation(self, request: ProgramRequest) -> GenerationRequest:
        defaults = self.engine.defaults
        stop = (*request.stop, *(self.engine.stop if request.messages else ()))
        messages = self.kept.recognised(request.messages)
        prompt = self._render(messages, request)
        complete = None
        if request.tools and request.single_call:
            complete = _ends_call(self.engine.vocabulary, prompt, request.takes)
        return GenerationRequest(
            messages,
            defaults.draw(request.sampling, REQUESTED),
            defaults.end(request.sampling, stop, REQUESTED),
            prompt=prompt,
            marks=MARKS if request.tools else (),
            logits=request.logits,
            constrain=request.constrain,
            complete=complete,
        )

    def _render(self, messages: Sequence[Message], request: ProgramRequest) -> list[int]:
        if messages:
            try:
                prompt = self.engine.render(messages, request.tools)
            except ModelError as error:  # this conversation's: others may be rendered
                raise InputError(str(error)) from error
        else:
            prompt = self.engine.render_text(request.text)
        forced = request.constrain is not None and not request.free
        if forced and prompt_opening(self.engine.vocabulary, prompt):
            raise InputError(REASONS)
        if len(prompt) >= self.engine.target.context_length:
            raise overflow(self.engine, len(prompt))
        return prompt

    def _park(self, request: ProgramRequest) -> None:
        """Park the cached conversation unless `request` continues it. Texts are not parked: an
        editor sends many that differ."""
        keys, target = conversation_keys(request.messages), self.engine.target
        if self._cached and self._cached not in keys and isinstance(target, ParkingTarget):
            with self.engine.busy:
                target.park()
        self._cached = keys[-1] if keys else b""

    def _chat(self, request: ProgramRequest) -> records.Chat | None:
        """Where the answer will be stored; None for nowhere."""
        if not request.store or not self.kept.max_bytes:
            return None
        return self.kept.chat_of(request.messages)

    def _engine(self, request: ProgramRequest, chat: records.Chat | None) -> Engine:
        if chat is None:
            return self._isolation.unsaved_engine()
        texts = (one.content for one in request.thread)
        engine = self._isolation.engine(chat, texts)
        return replace(engine, observers=[]) if request.logits else engine

    def _end(
        self,
        request: ProgramRequest,
        generation: GenerationRequest,
        chat: records.Chat | None,
        engine: Engine,
        given: _Given,
    ) -> None:
        """Store a finished answer in `chat`, and recognise it from now on."""
        finished = given.finish != FINISH_INTERRUPTED and bool(given.text)
        if generation.end.stop and not engine.vocabulary.stops.intersection(given.tokens[-1:]):
            given.tokens = []  # they have a part of the stop sequence, which the text has not
        if chat is not None and _has_secret(request, given):
            chat = None
        if chat is not None:
            with engine.resources.collecting_errors():  # the program has its answer
                if finished:
                    self.kept.store(chat, given.stored(engine, generation))
                self._record(request, chat, engine, given)
        if request.messages and finished:
            self._remember(request, chat, given)

    def _remember(self, request: ProgramRequest, chat: records.Chat | None, given: _Given) -> None:
        split = split_reasoning(given.text)
        stream = CallStream(request.takes, request.single_call)
        content = stream.append(split.answer, last=True) if request.tools else split.answer
        calls = tuple(ToolCall("", call.name, call.arguments) for call in stream.calls)
        answer = Message(records.ASSISTANT, content, calls=calls)
        written, tokens = split.answer, [] if split.marked else given.tokens
        if calls and (request.single_call or not is_marked(written)):
            # Cut off, or not as the model was trained to call: shown such a form of its own, it
            # calls again and again.
            written, tokens = "", []
        self.kept.remember(request.messages, answer, written, tokens, chat)

    def _record(
        self, request: ProgramRequest, chat: records.Chat, engine: Engine, given: _Given
    ) -> None:
        """Have the answer drafted and learned from; an unfinished one is forgotten."""
        self._isolation.answered(
            chat,
            engine,
            request.thread,
            given.text,
            len(self.engine.target.tokens),
            partial(self.kept.holds, chat.id),
            looped=given.finish in (records.LOOPED, FINISH_INTERRUPTED),
        )


def _ends_call(
    vocabulary: Vocabulary, prompt: Sequence[int], takes: Takes
) -> Callable[[Sequence[int], int], bool]:
    """Whether an answer to `prompt`, `tokens[start:]`, ends with a call that counts."""
    piece, opening = marked_piece(vocabulary, MARKS), prompt_opening(vocabulary, prompt)

    def ends(tokens: Sequence[int], start: int) -> bool:
        if not piece(tokens[-1]).rstrip().endswith(CALL_ENDS):
            return False
        text = b"".join(map(piece, tokens[start:])).decode("utf-8", "replace")
        return ends_call(split_reasoning(opening + text).answer.rstrip(), takes)

    return ends


def _has_secret(request: ProgramRequest, given: _Given) -> bool:
    texts = (given.text, *(message.content for message in request.thread))
    return any(redact(text)[1] for text in texts)
