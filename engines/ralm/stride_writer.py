"""Writes an answer stride by stride, each under the passage that retrieval chose for it.

One `decode` runs for as long as the passage stays the same. Another passage means another prompt,
prefill of the part that is not in the KV cache, and a new `decode`. Tokens written under a guess
stay unconfirmed until the guess is verified; a misprediction discards them and all later tokens.

A draft may reach beyond the end of a stride (`across`). Its tokens were verified under that
stride's passage, so they are kept if the next stride has the same one, and discarded otherwise.
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
        prompt: the prompt's token ids with a passage, or with none.
        query: the words to retrieve for, from the token ids of the answer so far.
        stop: when the answer ends.
        stride: k, tokens written before the next retrieval.
        interruption: why to stop writing now; empty to continue.
        written: tokens already generated, whole strides of a stopped answer that is resumed; they
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
        tokens: the answer's tokens, unconfirmed ones included.
        finish: why the last token ended the answer; empty while generating.
        passage: the one that the last token was written under.
        prefills: number of prefills.
        passes: forward passes of `decode`, those of discarded tokens included.
        seconds: wall time of writing.
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
        self._confirmed = len(request.written)  # number of tokens in the steps handed out
        self._read: set[int | None] = set()  # passages whose prompts were prefilled

    def write(self, passage: Passage | None, start: int, until: int) -> None:
        """Write from `start` under `passage` until there are `until` tokens or the answer ends.

        Tokens from `start` on are kept if they were written under the same passage.

        Raises:
            ContextOverflowError: the prompt does not fit into the context.
        """
        started = perf_counter()
        if passage_id(passage) != passage_id(self.passage):
            self.rewind(start)
            self._stop()
        if len(self.tokens) < until and not self.finish:
            if self._steps is None:
                self._begin(passage)
            while len(self.tokens) < until and not self.finish:
                assert self._steps is not None, "a decode loop runs until the answer ends"
                self._budget.room = None if self._across else until - len(self.tokens)
                self._take(next(self._steps))
                self.finish = self.finish or self._request.interruption()
        self.seconds += perf_counter() - started

    def has_read(self, passage: Passage | None) -> bool:
        """Whether the KV cache still holds the prompt with `passage`."""
        if self._steps is not None and passage_id(passage) == passage_id(self.passage):
            return True  # the usual case, and cheaper than comparing prompts
        read = passage_id(passage) in self._read
        if read and isinstance(self._target, ParkingTarget):
            prompt = self._request.prompt(passage)
            return self._target.cached_prefix(prompt) == len(prompt)
        return read

    def rewind(self, length: int) -> None:
        """Discard all tokens but the first `length`."""
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
        """Replace the token at `index` with `token`, and discard those after it."""
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
        """Hand out the further steps within the first `length` tokens, which are now final.

        A step that reaches beyond `length` waits until it is confirmed as a whole, or cut.
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
        """The budget's status at the present context length."""
        return self._budget.status(len(self._target.tokens))

    def close(self) -> None:
        """Stop writing, and drop parked prompts."""
        self._stop()
        if isinstance(self._target, ParkingTarget):
            self._target.drop_parked()

    def _begin(self, passage: Passage | None) -> None:
        """Prefill the prompt with `passage` and the answer so far, and start a decode loop."""
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
        self._read.add(passage_id(passage))
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
        """Why the answer ends after its first `length` tokens; empty if it does not."""
        stop, prompt = self._request.stop, self._request.prompt(self.passage)
        if reason := stop.reason([*prompt, *self.tokens[:length]], len(prompt)):
            return reason
        if length >= stop.limit:
            return FINISH_LENGTH
        return FINISH_CONTEXT if len(prompt) + length > self._target.context_length else ""

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
        room: tokens left of the stride; None if drafts may reach beyond its end.
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


def passage_id(passage: Passage | None) -> int | None:
    """Id of a passage, or None."""
    return passage.id if passage is not None else None


def cut(step: Step, length: int) -> Step:
    """`step` cut to its first `length` tokens."""
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
