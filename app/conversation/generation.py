"""Answers a list of messages through the one decode loop: messages in, events out, no history.

Fits the messages into the context, prefills the prompt, decodes, and turns tokens into text. The
interface, `specchat ask` and the benchmarks all generate through here. Refuses to know where chats
are stored and how text is displayed.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Event as Flag
from time import perf_counter

from app.chat_settings import AnswerEnd
from app.conversation.events import Dropped, Event, Finished, Prefilling, Wrote
from app.conversation.statistics import Piece, Statistics
from app.conversation.stop_sequences import HeldText, StopSequences
from app.engine.engine import Engine
from app.engine.stores import wanted_logits
from datastores.errors import ContextOverflowError
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.draft_tree import credited
from engines.repetition import is_looping
from engines.sampler import Sampling, make_sampler
from engines.step import FINISH_REPETITION, FINISH_STOP, Step

FINISH_INTERRUPTED = "interrupted"
ANSWER_SHARE = 0.25
"""Share of the context that stays free for the answer when old turns are dropped."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What is to be written.

    Attributes:
        messages: the last of them is answered.
        end: where the answer ends.
        written: the tokens of the answer so far. It goes on behind them as if it had never been
            stopped, up to the next multiple of its longest.
    """

    messages: Sequence[Message]
    sampling: Sampling
    end: AnswerEnd
    written: Sequence[int] = ()


def generate(
    engine: Engine, request: GenerationRequest, statistics: Statistics, stop: Flag
) -> Generator[Event]:
    """Answer `request`; ends with `Finished`.

    Holds the model's lock until it ends. `statistics` is filled in along the way. Setting `stop`
    ends the answer at the next step, with finish `interrupted`; closing the generator ends it
    without a last event.

    Raises:
        ContextOverflowError: the last message alone does not fit into the context.
    """
    end, written = request.end, request.written
    with engine.busy:
        started = perf_counter()
        prompt, dropped = fit(engine, request.messages, end.max_tokens, len(written))
        if dropped:
            yield Dropped(dropped)
        statistics.prompt_tokens = len(prompt)
        context, finish = [*prompt, *written], ""
        yield from load_state(engine, context)
        cached, reading = common_prefix(engine.target.tokens, context), perf_counter()
        for done in engine.target.prefill(context):
            yield Prefilling(done, len(context))
            if stop.is_set():
                finish = FINISH_INTERRUPTED
                break
        if engine.states is not None:
            engine.states.observe(done - cached, perf_counter() - reading)
        if not finish:
            stream = TextStream(engine, written, end.stop)
            with closing(_decode(engine, request, statistics)) as steps:
                for step in steps:
                    if step.prefill:
                        statistics.first_token_seconds = perf_counter() - started
                    status = engine.budget.status(step.position)
                    statistics.compare(step, status)
                    last = bool(step.finish) or stop.is_set()
                    yield Wrote(stream.pieces(step, last=last), step, status)
                    # What is held back comes with one more step.
                    interrupted = stop.is_set() and not stream.holds
                    finish = step.finish or (FINISH_INTERRUPTED if interrupted else "")
                    if finish:
                        break
        statistics.seconds = perf_counter() - started
        yield Finished(finish, statistics, request.sampling.seed)


def load_state(engine: Engine, prompt: Sequence[int]) -> Generator[Event]:
    """Load what is saved of `prompt` into the target's cache."""
    if engine.states is not None:
        for done in engine.states.load(prompt):
            yield Prefilling(done, len(prompt))


def _decode(engine: Engine, request: GenerationRequest, statistics: Statistics) -> Generator[Step]:
    longest, written = request.end.max_tokens, len(request.written)
    return decode(
        engine.target,
        engine.drafters,
        engine.budget,
        make_sampler(request.sampling),
        stop_criteria(engine, longest - written % longest, request.end.stop, request.written),
        temperature=request.sampling.temperature,
        answered=written,
        keep=wanted_logits(engine.observers) if engine.learns else None,
        observers=(statistics, *engine.observers),
    )


def stop_criteria(
    engine: Engine, limit: int, sequences: Sequence[str], written: Sequence[int] = ()
) -> StopCriteria:
    """An answer ends as the model wants, after `limit` tokens, with one of `sequences`, or where it
    loops.

    Args:
        written: tokens of the answer so far; one that ended in a loop may go on for another.
    """
    found = StopSequences(sequences, engine.vocabulary.piece)
    skipped = len(written) if is_looping(written, 0) else 0

    def ends(tokens: Sequence[int], start: int) -> str:
        if sequences and found.end_with(tokens, start):
            return FINISH_STOP
        return FINISH_REPETITION if is_looping(tokens, start + skipped) else ""

    return StopCriteria(engine.vocabulary.stops, limit, ends)


def fit(
    engine: Engine, messages: Sequence[Message], limit: int, written: int = 0
) -> tuple[list[int], int]:
    """The prompt's token ids, and how many of the oldest messages had to be dropped for it.

    The system prompt is kept, and so are notes before the last message. Whole turns are dropped,
    oldest first, until the prompt has at most `max_prompt_tokens`. An answer of which `written`
    tokens are there goes on behind the prompt it began with, and behind a shorter one once it has
    filled the rest of the context.

    Raises:
        ContextOverflowError: nothing is left to drop.
    """
    context, longest = engine.target.context_length, max_prompt_tokens(engine, limit)
    tokens, dropped = _without_oldest(engine, messages, longest)
    if written and len(tokens) + written > context:
        tokens, dropped = _without_oldest(engine, messages, longest - written)
    if len(tokens) >= context:
        raise _overflow(engine, len(tokens))
    if len(tokens) + written > context:
        raise ContextOverflowError(
            f"cannot continue: the question and its answer fill the context ({context:,} tokens)"
        )
    return tokens, dropped


def _without_oldest(
    engine: Engine, messages: Sequence[Message], length: int
) -> tuple[list[int], int]:
    """The prompt, and how many messages were dropped to make it `length` tokens, if that helps."""
    system = [message for message in messages[:1] if message.role == "system"]
    kept = list(messages[len(system) :])
    question = 2 if len(kept) > 1 and kept[-2].role == "system" else 1
    tokens = engine.render([*system, *kept])
    while len(tokens) > length and len(kept) > question:
        del kept[0]
        while len(kept) > question and kept[0].role != "user":
            del kept[0]
        tokens = engine.render([*system, *kept])
    return tokens, len(messages) - len(system) - len(kept)


def max_prompt_tokens(engine: Engine, limit: int) -> int:
    """Tokens of a prompt that leaves a quarter of the context, or `limit`, for the answer."""
    context = engine.target.context_length
    return context - min(limit, int(context * ANSWER_SHARE))


def require_fit(engine: Engine, messages: Sequence[Message], *, attached: bool = False) -> None:
    """Check that `messages`, of which none can be dropped, leave space for an answer.

    Args:
        attached: whether files are part of the question.

    Raises:
        ContextOverflowError: by how many tokens they do not, and what would help.
    """
    length = len(engine.render(messages))
    if length > engine.target.context_length - 1:
        raise _overflow(engine, length, "remove an attachment" if attached else "shorten it")


def _overflow(engine: Engine, length: int, way_out: str = "shorten it") -> ContextOverflowError:
    """The error for a prompt of `length` tokens; `context` is not worth raising beyond training."""
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


class TextStream:
    """Turns tokens into text; the bytes of an incomplete character wait for its last token.

    Attributes:
        begun: the text of the tokens that were written before.
    """

    def __init__(
        self, engine: Engine, written: Sequence[int] = (), sequences: Sequence[str] = ()
    ) -> None:
        """The tokens follow those that are `written`, and end before one of `sequences`."""
        self._piece = engine.vocabulary.piece
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._held = HeldText(sequences)
        text = self._decoder.decode(b"".join(map(self._piece, written)))
        self.begun = self._held.begin(text)

    @property
    def holds(self) -> bool:
        """Whether text is held back that may begin a stop sequence."""
        return self._held.holds

    def pieces(self, step: Step, *, last: bool = False) -> tuple[Piece, ...]:
        """The step's text, token by token, each with the source it is credited to.

        Invalid UTF-8 becomes U+FFFD, and so does an incomplete character at the end of the answer.

        Args:
            last: no step follows, though this one may not end the answer.
        """
        final = len(step.tokens) - 1
        pieces: list[Piece] = []
        for index, (token, sources) in enumerate(zip(step.tokens, step.sources, strict=True)):
            ends = bool(step.finish) and index == final
            text = self._decoder.decode(self._piece(token), ends)
            piece = Piece(text, credited(sources))
            over = (last or ends) and index == final
            if text or over:
                pieces += self._held.release(piece, last=over)
        return tuple(pieces)
