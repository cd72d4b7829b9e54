"""Writes an answer stride by stride, each under the passage that retrieval chose for it.

One `decode` goes on for as long as the passage stays; another passage means another prompt, a
prefill of what the KV cache lacks of it, and a new `decode`. Tokens that were written under a guess
wait here until the guess is confirmed, or are taken back with everything behind them.

A draft may reach beyond the end of a stride (`across`): its tokens were verified under this
stride's passage, so they stand if the next stride has the same one, and are taken back if not.
Owns the tokens of the answer and which passage they are written under. Refuses to know where
passages come from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from datastores.passages.chunks import Passage
from engines.budget.protocol import Budget, BudgetStatus, Draft
from engines.decode import StopCriteria, decode
from engines.drafters.protocol import Drafter
from engines.sampler import Draw
from engines.step import FINISH_CONTEXT, FINISH_LENGTH, Context, Step
from engines.target import ParkingTarget, Target


@dataclass(frozen=True, slots=True)
class RalmRequest:
    """A question whose passages may change while it is answered.

    Attributes:
        prompt: a passage, or None → the token ids of the prompt with it.
        query: token ids of the answer so far → the words to retrieve for.
        stop: ends the answer.
        stride: k, tokens written before the next retrieval.
        interruption: why to stop writing now; empty to go on.
        written: tokens of an answer that was stopped, whole strides of it, to go on behind; they
            count towards the limit of `stop`.
    """

    prompt: Callable[[Passage | None], Sequence[int]]
    query: Callable[[Sequence[int]], str]
    draw: Draw
    stop: StopCriteria
    temperature: float = 0.0
    stride: int = 4
    interruption: Callable[[], str] = lambda: ""
    written: Sequence[int] = ()


class StrideWriter:
    """The answer in progress.

    Attributes:
        tokens: of the answer, unconfirmed ones included.
        finish: why the last token ended the answer; empty while it goes on.
        passage: what the last token was written under.
        prefills: times that a prompt was read, or as much of it as the KV cache lacked.
        passes: forward passes of `decode`, those of discarded tokens included.
        seconds: spent on writing.
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter],
        budget: Budget,
        request: RalmRequest,
        *,
        across: bool = False,
    ) -> None:
        self.tokens = list(request.written)
        self.finish = ""
        self.passage: Passage | None = None
        self.prefills = self.passes = 0
        self.seconds = 0.0
        self._target = target
        self._drafters = drafters
        self._budget = StrideBudget(budget)
        self._request = request
        self._across = across
        self._steps: Generator[Step] | None = None
        self._unconfirmed: list[Step] = []
        self._confirmed = len(request.written)  # tokens in steps that were handed out
        self._read: set[int | None] = set()  # passages whose prompts were read

    def write(self, passage: Passage | None, start: int, until: int) -> None:
        """Go on from `start` under `passage` until there are `until` tokens, or the answer ends.

        Tokens from `start` on that were drafted under the last passage stand if it is the same.

        Raises:
            ContextOverflowError: the prompt does not fit into the context.
        """
        started = perf_counter()
        if number_of(passage) != number_of(self.passage):
            self.rewind(start)
            self._stop()
        if len(self.tokens) < until and not self.finish:
            if self._steps is None:
                self._begin(passage)
            while len(self.tokens) < until and not self.finish:
                self._budget.room = None if self._across else until - len(self.tokens)
                self._take(next(self._running()))
                self.finish = self.finish or self._request.interruption()
        self.seconds += perf_counter() - started

    def has_read(self, passage: Passage | None) -> bool:
        """Whether the KV cache holds the prompt with `passage`; others may need its cells."""
        if self._steps is not None and number_of(passage) == number_of(self.passage):
            return True  # as nearly always; comparing prompts takes longer
        read = number_of(passage) in self._read
        if read and isinstance(self._target, ParkingTarget):
            prompt = self._request.prompt(passage)
            return self._target.cached_prefix(prompt) == len(prompt)
        return read

    def rewind(self, length: int) -> None:
        """Take back all tokens but the first `length`."""
        if length == len(self.tokens) and not self.finish:
            return
        self._stop()
        del self.tokens[length:]
        self.finish = ""
        start, kept = self._confirmed, list[Step]()
        for step in self._unconfirmed:
            if start < length:
                kept.append(cut(step, length - start))
            start += len(step.tokens)
        self._unconfirmed = kept

    def correct(self, index: int, token: int) -> None:
        """Put `token` in the place of the one at `index`, and take back what follows it."""
        self.rewind(index + 1)
        self._stop()
        self.tokens[index] = token
        self.finish = self._finish_at(index + 1)
        last = self._unconfirmed[-1]
        self._unconfirmed[-1] = replace(
            last,
            tokens=(*last.tokens[:-1], token),
            origins=(*last.origins[:-1], 0),
            finish=self.finish,
        )

    def confirm(self, length: int) -> list[Step]:
        """The steps within the first `length` tokens that were not handed out yet: they stay.

        A step that goes on beyond them waits until it is confirmed whole, or cut.
        """
        confirmed = list[Step]()
        while self._unconfirmed:
            end = self._confirmed + len(self._unconfirmed[0].tokens)
            if end > length:
                break
            confirmed.append(self._unconfirmed.pop(0))
            self._confirmed = end
        return confirmed

    def status(self) -> BudgetStatus:
        """What plain decoding takes."""
        return self._budget.status(len(self._target.tokens))

    def close(self) -> None:
        """Stop writing, and leave the whole KV cache to the next answer."""
        self._stop()
        if isinstance(self._target, ParkingTarget):
            self._target.drop_parked()

    def _begin(self, passage: Passage | None) -> None:
        """Put `passage` before the prompt, with the answer so far behind it, and decode on."""
        self._stop()
        request, answered = self._request, len(self.tokens)
        text = [*request.prompt(passage), *self.tokens]
        self.passage = passage
        if answered:
            if len(text) > self._target.context_length:
                self.finish = FINISH_CONTEXT
                return
            if isinstance(self._target, ParkingTarget):
                self._target.park()
            else:
                self._read.clear()
        self.prefills += 1
        for _ in self._target.prefill(text):
            self.finish = request.interruption()
            if self.finish:
                return
        self._read.add(number_of(passage))
        self._steps = decode(
            self._target,
            self._drafters,
            self._budget,
            request.draw,
            replace(request.stop, limit=request.stop.limit - answered),
            temperature=request.temperature,
            answered=answered,
        )

    def _finish_at(self, length: int) -> str:
        """Why the answer ends with its first `length` tokens; empty if it goes on."""
        stop, prompt = self._request.stop, self._request.prompt(self.passage)
        if reason := stop.reason([*prompt, *self.tokens[:length]], len(prompt)):
            return reason
        if length >= stop.limit:
            return FINISH_LENGTH
        return FINISH_CONTEXT if len(prompt) + length > self._target.context_length else ""

    def _running(self) -> Generator[Step]:
        assert self._steps is not None, "a decode loop is running while the answer goes on"
        return self._steps

    def _take(self, step: Step) -> None:
        self.passes += not step.prefill
        self.tokens += step.tokens
        self.finish = step.finish
        self._unconfirmed.append(step)

    def _stop(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None


class StrideBudget:
    """A budget whose drafts end with the stride. Implements `engines.budget.protocol.Budget`.

    Attributes:
        room: tokens that are left of the stride; None where drafts may go beyond its end.
    """

    def __init__(self, budget: Budget) -> None:
        self.room: int | None = None
        self._budget = budget

    def begin(self, context: Context) -> None:
        """See `StepObserver.begin`."""
        self._budget.begin(context)

    def observe(self, step: Step) -> None:
        """See `StepObserver.observe`."""
        self._budget.observe(step)

    def draft(
        self, drafters: Sequence[Drafter], context: Context, target: Target, room: int
    ) -> Draft:
        """See `Budget.draft`: n rows yield at most n tokens."""
        room = room if self.room is None else min(room, self.room)
        return self._budget.draft(drafters, context, target, room)

    def top_tokens_needed(self, drafters: Sequence[Drafter]) -> int:
        """See `Budget.top_tokens_needed`."""
        return self._budget.top_tokens_needed(drafters)

    def status(self, length: int) -> BudgetStatus:
        """See `Budget.status`."""
        return self._budget.status(length)


def number_of(passage: Passage | None) -> int | None:
    """What a passage is told apart by."""
    return passage.id if passage is not None else None


def cut(step: Step, length: int) -> Step:
    """`step` with its first `length` tokens alone; `step` itself if it has no more."""
    if len(step.tokens) <= length:
        return step
    kept = tuple(index for index in step.kept if index < length)
    return replace(
        step,
        tokens=step.tokens[:length],
        origins=step.origins[:length],
        path=step.path[:length],
        hidden=step.hidden[:length],
        top_tokens=[],
        top_logits=step.top_logits[:0],
        kept=kept,
        kept_logits=step.kept_logits[: len(kept)],
        finish="",
    )
