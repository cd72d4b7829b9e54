"""Which messages of a chat the model sees, and in which form.

Earlier answers are shown without their reasoning, as chat templates expect and models are trained.

When a chat no longer fits, the oldest turns are dropped as one block, down to `KEPT_SHARE` of the
room, and the boundary stays there until the rest has filled up, so that most prompts begin like the
previous one and reuse the KV cache. The boundary is stored with each answer (`WINDOW_KEY`), so that
older messages are not even read from disk for the next question.

A prompt is rendered once or twice per question, however long the chat: what fits is estimated from
the tokens of each message, newest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.engine.engine import Engine
from datastores.chats import records
from datastores.chats.history import HistoryReader
from datastores.chats.records import StoredMessage
from datastores.errors import ContextOverflowError
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import split_reasoning
from engines.target import Vocabulary

ANSWER_SHARE = 0.25
"""Share of the context that stays free for the answer when old turns are dropped."""
KEPT_SHARE = 0.25
"""Share of the room for the prompt that is kept when old turns are dropped; the last turn is always
kept.

The kept part is prefilled again each time: with a quarter, at most every third token is read twice.
It is also what the first question in a long restored chat waits for: 1,800 tokens with a context of
8,192, or about five long turns."""
ESTIMATE_SLACK = 1.25
"""A chat whose estimate exceeds the room by this factor is not rendered to make sure."""
MESSAGE_TOKENS = 4
"""About the number of tokens that a chat template adds to a message."""
WINDOW_KEY = "window"
"""The key of `Boundary` among an answer's stored figures; absent where nothing was dropped."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where the part of a chat that the model sees begins.

    Attributes:
        dropped: number of oldest messages left out, the system prompt not counted.
        context: context length that it was chosen for; it is not kept for another one.
    """

    dropped: int = 0
    context: int = 0


WHOLE_CHAT = Boundary()


def read_window(
    history: HistoryReader, engine: Engine, message: int, answer: int | None
) -> tuple[list[StoredMessage], Boundary]:
    """The path to `message` from the boundary of `answer` on, and that boundary.

    The whole path if `engine` cannot keep the boundary, as all of it may fit.

    Args:
        answer: on the path, or following it; None for none.

    Raises:
        InputError, StoreError: it cannot be read.
    """
    if answer is not None:
        boundary = _boundary(engine, history.message(answer))
        path = history.path(message, boundary.dropped)
        if path and path[0].role == records.USER:
            return path, boundary
    return history.path(message), WHOLE_CHAT


def _boundary(engine: Engine, answer: StoredMessage) -> Boundary:
    """The boundary stored with `answer`, if `engine` can keep it."""
    stored = answer.statistics.get(WINDOW_KEY)
    if answer.model != engine.target.fingerprint or not isinstance(stored, Mapping):
        return WHOLE_CHAT
    dropped, context = stored.get("dropped"), stored.get("context")
    if not isinstance(dropped, int) or dropped < 0 or context != engine.target.context_length:
        return WHOLE_CHAT
    return Boundary(dropped, context)


def shown_messages(
    vocabulary: Vocabulary, system: str, thread: Sequence[StoredMessage]
) -> list[Message]:
    """A stored thread as model input, after the system prompt `system` unless that is empty."""
    return [*system_prompt(system), *(_shown(vocabulary, message) for message in thread)]


def system_prompt(text: str) -> list[Message]:
    """The system prompt as a message; none where it is empty."""
    return [Message(records.SYSTEM, text)] if text else []


def _shown(vocabulary: Vocabulary, message: StoredMessage) -> Message:
    """A message, with its stored token ids if they are this tokenizer's and none is hidden."""
    if message.role == records.ASSISTANT:
        split = split_reasoning(message.content)
        if split.marked:
            return Message(message.role, split.answer)
    tokens = message.tokens if message.tokenizer == vocabulary.fingerprint else ()
    return Message(message.role, message.content, tokens)


def blocks(engine: Engine, messages: Sequence[Message]) -> Iterator[list[Message]]:
    """`messages` in parts of whole turns that fit into the context, by estimate, each with the
    system prompt; rendering a long chat at once may take quadratic time."""
    system = [message for message in messages[:1] if message.role == records.SYSTEM]
    part, used = list(system), 0
    for message in messages[len(system) :]:
        count = message_tokens(engine.vocabulary, message)
        full = used + count > engine.target.context_length
        if full and used and message.role == records.USER:
            yield part
            part, used = list(system), 0
        part.append(message)
        used += count
    if used:
        yield part


def message_tokens(vocabulary: Vocabulary, message: Message) -> int:
    """About the number of tokens of a message in a prompt."""
    tokens = message.tokens or vocabulary.encode(message.content)
    return len(tokens) + MESSAGE_TOKENS


def max_prompt_tokens(engine: Engine, limit: int) -> int:
    """Longest prompt that leaves `ANSWER_SHARE` of the context, or `limit`, for the answer."""
    context = engine.target.context_length
    return context - min(limit, int(context * ANSWER_SHARE))


def fit(
    engine: Engine, messages: Sequence[Message], limit: int, written: int = 0
) -> tuple[list[int], int]:
    """The prompt's token ids, and the number of oldest messages dropped to make it fit.

    Whole turns are dropped, oldest first, if the prompt has more than `max_prompt_tokens`; the
    system prompt and notes before the last message are kept. An answer with `written` tokens
    continues after the prompt it began with, or after a shorter one once the context is full.

    Raises:
        ContextOverflowError: nothing is left to drop.
    """
    context, longest = engine.target.context_length, max_prompt_tokens(engine, limit)
    window = _Window(engine, messages)
    tokens, dropped = window.shorten(longest, 0)
    if written and len(tokens) + written > context:
        tokens, dropped = window.shorten(longest - written, dropped)
    if len(tokens) >= context:
        raise overflow(engine, len(tokens))
    if len(tokens) + written > context:
        raise ContextOverflowError(
            f"cannot continue: the question and its answer fill the context ({context:,} tokens)"
        )
    return tokens, dropped


class _Window:
    """Prompts of a chat's system prompt and its messages from some turn on."""

    def __init__(self, engine: Engine, messages: Sequence[Message]) -> None:
        self._engine = engine
        self._system = [message for message in messages[:1] if message.role == records.SYSTEM]
        self._thread = messages[len(self._system) :]
        noted = len(self._thread) > 1 and self._thread[-2].role == records.SYSTEM
        self._last = len(self._thread) - 1 - noted
        self._counts: dict[int, int] = {}

    def shorten(self, length: int, start: int) -> tuple[list[int], int]:
        """The prompt from message `start` on, or from a later one if it has more than `length`
        tokens; and the first message in it."""
        start = self._turn(start)
        if start >= self._first(int(length * ESTIMATE_SLACK)):
            tokens = self._render(start)
            if len(tokens) <= length or start == self._last:
                return tokens, start
        room = int(length * KEPT_SHARE)
        if self._first(length) <= (last := self._previous_turn()):
            room = max(room, self._used(last))
        while True:
            start = max(self._turn(start + 1), self._first(room))
            tokens = self._render(start)
            if len(tokens) <= length or start == self._last:
                return tokens, start
            room = room * room // len(tokens)  # the estimate was too low

    def _first(self, room: int) -> int:
        """The first turn from which the prompt has at most `room` tokens, by estimate."""
        first, used = self._last, self._used(self._last)
        for index in range(self._last - 1, -1, -1):
            used += self._count(index)
            if used > room:
                break
            if self._begins_turn(index):
                first = index
        return first

    def _used(self, start: int) -> int:
        """Estimated tokens of the prompt from message `start` on."""
        system = sum(message_tokens(self._engine.vocabulary, message) for message in self._system)
        return system + sum(map(self._count, range(start, len(self._thread))))

    def _previous_turn(self) -> int:
        """The turn before the last message."""
        before = range(self._last - 1, -1, -1)
        return next((at for at in before if self._begins_turn(at)), self._last)

    def _turn(self, start: int) -> int:
        """The first turn at or after message `start`."""
        start = max(0, min(start, self._last))
        return next((at for at in range(start, self._last) if self._begins_turn(at)), self._last)

    def _begins_turn(self, index: int) -> bool:
        return index == 0 or self._thread[index].role == records.USER

    def _count(self, index: int) -> int:
        if index not in self._counts:
            self._counts[index] = message_tokens(self._engine.vocabulary, self._thread[index])
        return self._counts[index]

    def _render(self, start: int) -> list[int]:
        return self._engine.render([*self._system, *self._thread[start:]])


def require_fit(engine: Engine, messages: Sequence[Message], *, attached: bool = False) -> None:
    """Check that `messages`, of which none can be dropped, leave room for an answer.

    Raises:
        ContextOverflowError: they do not; with files `attached`, it advises to remove one.
    """
    length = len(engine.render(messages))
    if length > engine.target.context_length - 1:
        raise overflow(engine, length, "remove an attachment" if attached else "shorten it")


def overflow(engine: Engine, length: int, way_out: str = "shorten it") -> ContextOverflowError:
    """The error for a prompt of `length` tokens; it advises a longer context up to that of
    training."""
    context, trained = engine.target.context_length, engine.trained_context
    if trained > context:
        or_else = f", or raise `context` in the settings (this model allows {trained:,})"
    else:
        or_else = ", or choose a model with a longer context (this one allows no more)"
    excess = length - context + 1
    return ContextOverflowError(
        f"the message is {excess:,} token{'s' * (excess > 1)} too long: it takes {length:,}, and"
        f" {context - 1:,} fit; {way_out}{or_else if trained else ''}"
    )
