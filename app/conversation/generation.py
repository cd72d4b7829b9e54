"""Answers a list of messages through the decode loop: messages in, events out, nothing stored.

Prefills the prompt, decodes, and turns tokens into text, for the interface, `specchat ask` and the
benchmarks alike.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Event as Flag
from time import perf_counter

import numpy as np

from app.chat_settings import AnswerEnd
from app.conversation.context_window import fit
from app.conversation.events import Dropped, Event, Finished, Prefilling, Wrote
from app.conversation.statistics import Piece, Statistics
from app.conversation.stop_sequences import HeldText, StopSequences
from app.engine.draft_resources import wanted_logits
from app.engine.engine import Engine
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import marked_piece, prompt_opening
from engines.decode import StopCriteria, decode
from engines.draft_tree import credited
from engines.repetition import is_counting, is_looping, token_text
from engines.sampler import Constrain, Sampling, make_sampler
from engines.step import FINISH_REPETITION, FINISH_STOP, Step
from engines.target import Floats, ParkingTarget, Target

FINISH_INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate.

    Attributes:
        messages: the last of them is answered; older ones are left out if they do not fit.
        end: where the answer ends.
        written: tokens already generated. Generation resumes after them, up to the next multiple of
            the longest answer.
        dropped: number of older messages of the chat that are left out.
        prompt: token ids of the whole prompt, to generate from instead of `messages`.
        marks: texts of control tokens to keep in the text, besides those that mark reasoning.
        logits: whether each step keeps the logits of all its tokens, which nothing else then gets.
        constrain: restricts the tokens that are drawn; None for no restriction.
        waited_seconds: time since the question was asked.
        complete: whether `tokens[start:]` is all that is wanted of the answer; None if only the
            model knows.
    """

    messages: Sequence[Message]
    sampling: Sampling
    end: AnswerEnd
    written: Sequence[int] = ()
    dropped: int = 0
    prompt: Sequence[int] = ()
    marks: Sequence[str] = ()
    logits: bool = False
    constrain: Constrain | None = None
    waited_seconds: float = 0.0
    complete: Callable[[Sequence[int], int], bool] | None = None


def generate(
    engine: Engine, request: GenerationRequest, statistics: Statistics, stop: Flag
) -> Generator[Event]:
    """Answer `request`; ends with `Finished`.

    Holds the model's lock and updates `statistics` until it ends. Setting `stop` ends the answer at
    the next step, with finish `interrupted`; closing the generator ends it without a last event.

    Raises:
        ContextOverflowError: the last message alone does not fit into the context.
    """
    end, written = request.end, request.written
    with engine.busy:
        started = perf_counter() - request.waited_seconds
        prompt, dropped = list(request.prompt), 0
        if not prompt:
            prompt, dropped = fit(engine, request.messages, end.max_tokens, len(written))
        yield from load_state(engine, [*prompt, *written])
        if dropped := dropped + request.dropped:
            yield Dropped(dropped)
        statistics.prompt_tokens = len(prompt)
        context, finish = [*prompt, *written], ""
        statistics.cached_tokens = _cached(engine.target, context)
        if not stop.is_set():
            yield from _read(engine, context, stop)
        if stop.is_set():
            finish = FINISH_INTERRUPTED
        if not finish:
            # A program sees its prompt, whatever mark that ends with; a chat shows answers alone.
            shown = prompt if request.messages else ()
            stream = TextStream(engine, written, end.stop, shown, request.marks)
            with closing(_decode(engine, request, statistics)) as steps:
                for step in steps:
                    if step.prefill:
                        statistics.first_token_seconds = perf_counter() - started
                    status = engine.budget.status(step.position)
                    statistics.compare(step, status)
                    last = bool(step.finish) or stop.is_set()
                    yield Wrote(stream.pieces(step, last=last), step, status)
                    # Text that is held back needs one more step.
                    interrupted = stop.is_set() and not stream.holds
                    finish = step.finish or (FINISH_INTERRUPTED if interrupted else "")
                    if finish:
                        break
        statistics.seconds = perf_counter() - started
        yield Finished(finish, statistics, request.sampling.seed)


def _read(engine: Engine, context: Sequence[int], stop: Flag) -> Generator[Event]:
    """Prefill `context`, or a part of it if `stop` is set."""
    cached, reading = _cached(engine.target, context), perf_counter()
    for done in engine.target.prefill(context):
        yield Prefilling(done, len(context))
        if stop.is_set():
            break
    if engine.states is not None:
        engine.states.observe(done - cached, perf_counter() - reading)


def _cached(target: Target, context: Sequence[int]) -> int:
    """Number of tokens of `context` that prefill need not evaluate: never the last one."""
    if isinstance(target, ParkingTarget):
        return min(target.cached_prefix(context), len(context) - 1)
    return min(common_prefix(target.tokens, context), len(context) - 1)


def load_state(engine: Engine, prompt: Sequence[int]) -> Generator[Event]:
    """Load the saved KV state of the beginning of `prompt`, if there is one."""
    if engine.states is not None:
        for done in engine.states.load(prompt):
            yield Prefilling(done, len(prompt))


def _decode(engine: Engine, request: GenerationRequest, statistics: Statistics) -> Generator[Step]:
    longest, written = request.end.max_tokens, len(request.written)
    keep = wanted_logits(engine.observers) if engine.learns else None
    if request.logits:
        keep = partial(_every_row, engine.target.vocabulary_size)
    return decode(
        engine.target,
        engine.drafters,
        engine.budget,
        make_sampler(request.sampling),
        stop_criteria(
            engine,
            longest - written % longest,
            request.end.stop,
            request.written,
            request.complete,
        ),
        temperature=request.sampling.temperature,
        answered=written,
        keep=keep,
        observers=(statistics, *engine.observers),
        constrain=request.constrain,
    )


def _every_row(size: int, position: int, origins: Sequence[int]) -> tuple[Sequence[int], Floats]:
    """An `engines.step.Keep` of the logits of all tokens, of a vocabulary of `size`."""
    return range(len(origins)), np.empty((len(origins), size), np.float32)


def stop_criteria(
    engine: Engine,
    limit: int,
    sequences: Sequence[str],
    written: Sequence[int] = (),
    complete: Callable[[Sequence[int], int], bool] | None = None,
) -> StopCriteria:
    """Stop at a stop token, after `limit` tokens, at one of `sequences`, in a loop, or once the
    answer is `complete`.

    Args:
        written: tokens of the answer so far; a loop at their end does not end it again.
    """
    found = StopSequences(sequences, marked_piece(engine.vocabulary))
    text = token_text(engine.vocabulary)

    def repeats(tokens: Sequence[int], start: int) -> bool:
        return is_looping(tokens, start) or is_counting(tokens, start, text)

    skipped = len(written) if repeats(written, 0) else 0

    def ends(tokens: Sequence[int], start: int) -> str:
        if sequences and found.end_with(tokens, start):
            return FINISH_STOP
        if complete is not None and complete(tokens, start):
            return FINISH_STOP
        return FINISH_REPETITION if repeats(tokens, start + skipped) else ""

    return StopCriteria(engine.vocabulary.stops, limit, ends)


class TextStream:
    """Turns tokens into text; the bytes of an incomplete character wait for its last token.

    Of control tokens, only those that mark reasoning have text. If the prompt ends with such a
    mark, the text begins with it.

    Attributes:
        begun: the text of the tokens already `written`.
    """

    def __init__(
        self,
        engine: Engine,
        written: Sequence[int] = (),
        sequences: Sequence[str] = (),
        prompt: Sequence[int] = (),
        marks: Sequence[str] = (),
    ) -> None:
        """Continue after `prompt` and `written`; the text ends before one of `sequences`, and
        control tokens that are `marks` have text too."""
        self._piece = marked_piece(engine.vocabulary, marks)
        self._opening = "" if written else prompt_opening(engine.vocabulary, prompt)
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._held = HeldText(sequences)
        text = self._decoder.decode(b"".join(map(self._piece, written)))
        self.begun = self._held.begin(text)

    @property
    def holds(self) -> bool:
        """Whether text that may begin a stop sequence is held back."""
        return self._held.holds

    def pieces(self, step: Step, *, last: bool = False) -> tuple[Piece, ...]:
        """The step's text, token by token, each with the origin it is credited to.

        Invalid UTF-8 becomes U+FFFD, and so does an incomplete character at the end of the answer.

        Args:
            last: no step follows, even if this one does not end the answer.
        """
        final = len(step.tokens) - 1
        pieces: list[Piece] = []
        for index, (token, origins) in enumerate(zip(step.tokens, step.origins, strict=True)):
            ends = bool(step.finish) and index == final
            text = self._decoder.decode(self._piece(token), ends)
            piece = Piece(text, credited(origins))
            over = (last or ends) and index == final
            if text or over:
                pieces += self._held.release(piece, last=over)
        if pieces and self._opening:
            pieces[0] = replace(pieces[0], text=self._opening + pieces[0].text)
            self._opening = ""
        return tuple(pieces)
