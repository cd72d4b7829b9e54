"""Answers a list of messages through the one decode loop: messages in, events out, no history.

Fits the messages into the context, prefills the prompt, decodes, and turns tokens into text. The
interface, `specchat ask` and the benchmarks all generate through here. Refuses to know where chats
are stored and how text is displayed.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Generator, Sequence
from contextlib import closing
from threading import Event as Flag
from time import perf_counter

from app.conversation.statistics import Piece, Statistics
from app.conversation.turn import Dropped, Event, Finished, Prefilling, Wrote
from app.engine.engine import Engine
from datastores.errors import ContextOverflowError
from engines.chat_message import Message
from engines.decode import StopCriteria, decode
from engines.draft_tree import credited
from engines.sampler import Sampling, make_sampler
from engines.step import Step

FINISH_INTERRUPTED = "interrupted"
ROOM = 0.25
"""Share of the context kept free for the answer when old turns are dropped."""


def generate(
    engine: Engine,
    messages: Sequence[Message],
    sampling: Sampling,
    limit: int,
    statistics: Statistics,
    stop: Flag,
) -> Generator[Event]:
    """Answer the last of `messages` in at most `limit` tokens; ends with `Finished`.

    `statistics` is filled in as the answer grows. Setting `stop` ends the answer at the next step,
    marked interrupted. Closing the generator ends it too, without a last event.

    Raises:
        ContextOverflowError: the last message alone does not fit into the context.
    """
    with engine.busy:
        started = perf_counter()
        prompt, dropped = fit(engine, messages, limit)
        if dropped:
            yield Dropped(dropped)
        statistics.prompt_tokens = len(prompt)
        finish = yield from _read(engine, prompt, stop)
        if not finish:
            ending = StopCriteria(engine.vocabulary.stops, limit)
            finish = yield from _write(engine, sampling, ending, statistics, started, stop)
        statistics.seconds = perf_counter() - started
        yield Finished(finish, statistics, sampling.seed)


def fit(engine: Engine, messages: Sequence[Message], limit: int) -> tuple[list[int], int]:
    """The prompt's token ids, and how many of the oldest messages had to be dropped for it.

    A system prompt stays. Turns are dropped whole, oldest first, until a quarter of the context (or
    `limit`, if that is less) is free for the answer.

    Raises:
        ContextOverflowError: nothing is left to drop.
    """
    context = engine.target.context_length
    most = context - min(limit, int(context * ROOM))
    fixed = [message for message in messages[:1] if message.role == "system"]
    kept = list(messages[len(fixed) :])
    tokens = engine.render([*fixed, *kept])
    while len(tokens) > most and len(kept) > 1:
        del kept[0]
        while len(kept) > 1 and kept[0].role != "user":
            del kept[0]
        tokens = engine.render([*fixed, *kept])
    if len(tokens) > context - 1:
        raise ContextOverflowError(
            f"the message has {len(tokens)} tokens but the model's context holds {context}:"
            " shorten it, or raise `context` in the configuration"
        )
    return tokens, len(messages) - len(fixed) - len(kept)


def _read(engine: Engine, prompt: Sequence[int], stop: Flag) -> Generator[Event, None, str]:
    """Prefill, with progress; returns why the turn ended already, if it did."""
    for done in engine.target.prefill(prompt):
        yield Prefilling(done, len(prompt))
        if stop.is_set():
            return FINISH_INTERRUPTED
    return ""


def _write(
    engine: Engine,
    sampling: Sampling,
    ending: StopCriteria,
    statistics: Statistics,
    started: float,
    stop: Flag,
) -> Generator[Event, None, str]:
    """Decode, with text; returns why the answer ended."""
    text = TextStream(engine)
    steps = decode(
        engine.target,
        engine.drafters,
        engine.budget,
        make_sampler(sampling),
        ending,
        temperature=sampling.temperature,
        observers=(statistics, *engine.observers),
    )
    with closing(steps):
        for step in steps:
            if step.prefill:
                statistics.first_token_seconds = perf_counter() - started
            status = engine.budget.status(step.position)
            yield Wrote(text.pieces(step), step, status)
            if step.finish:
                return step.finish
            if stop.is_set():
                return FINISH_INTERRUPTED
    return FINISH_INTERRUPTED


class TextStream:
    """Turns tokens into text as they come; a character split across tokens waits for its end."""

    def __init__(self, engine: Engine) -> None:
        self._piece = engine.vocabulary.piece
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def pieces(self, step: Step) -> tuple[Piece, ...]:
        """The step's text, token by token, each with the source it is credited to.

        Bytes that are no UTF-8 become U+FFFD; at the end of the answer a half character does too.
        """
        last = len(step.tokens) - 1
        pieces = []
        for index, (token, sources) in enumerate(zip(step.tokens, step.sources, strict=True)):
            final = bool(step.finish) and index == last
            text = self._decoder.decode(self._piece(token), final)
            if text:
                pieces.append(Piece(text, credited(sources)))
        return tuple(pieces)
