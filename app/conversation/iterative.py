"""Answering with passages that change while the answer is generated: iterative retrieval.

Makes the prompts and queries of such an answer; `engines.ralm` chooses the passages.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Event as Flag
from time import perf_counter

from app.conversation.context_window import fit
from app.conversation.events import Dropped, Event, Finished, Retrieved, Speculated, Wrote
from app.conversation.generation import (
    FINISH_INTERRUPTED,
    GenerationRequest,
    TextStream,
    load_state,
    stop_criteria,
)
from app.conversation.imported_texts import ImportedTexts, fitting, with_notes
from app.conversation.statistics import Statistics
from app.engine.draft_resources import recorders, set_recording_owner
from app.engine.engine import Engine
from app.indexing.passage_index import FoundPassage
from datastores.passages.chunks import Passage
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.speculative import SpeculativeRalm
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.sampler import Sampling, make_sampler
from engines.step import Context, Step

QUERY_TOKENS = 32
"""Last tokens of question and answer that form a query (RaLMSpec, section 5.1)."""
STRIDE_TOKENS = 4
"""k: tokens generated before the next retrieval (the same section)."""
PREFETCH = 4
"""Passages of each search that later strides are guessed from. With 1, 4 and 20 the next passage is
among them for .90, .93 and .95 of 133 strides, but a guess scores 3, 11 and 50 passages on average,
in .37 ms each."""

MakePrompt = Callable[[Passage | None], Sequence[int]]
"""The token ids of the prompt with a passage, or with none."""
Owner = Callable[[Iterable[bytes]], str]
"""Keys of documents → the owner of what is recorded with their passages in the prompt."""


def generate_iteratively(
    engine: Engine,
    imports: ImportedTexts,
    request: GenerationRequest,
    statistics: Statistics,
    stop: Flag,
    import_paths: frozenset[str] = frozenset(),
    owner: Owner = lambda documents: "",
) -> Generator[Event]:
    """Answer `request`, each stride of tokens from the best passage for it.

    Like `app.conversation.generation.generate`, with `Retrieved` for every new passage and
    `Speculated` for every stride. Text comes once its passage is confirmed.

    Args:
        import_paths: the only imports that are searched; empty for all.
        owner: of what is recorded, see `RunRecorder`.
    """
    limit, written = request.end.max_tokens, request.written
    with engine.busy:
        started = perf_counter() - request.waited_seconds
        prompt, dropped = fit(engine, request.messages, limit, len(written))
        statistics.prompt_tokens = len(prompt)
        if dropped := dropped + request.dropped:
            yield Dropped(dropped)
        yield from load_state(engine, prompt)
        longest = (len(written) // limit + 1) * limit
        ends = stop_criteria(engine, longest, request.end.stop, written)
        ralm = replace(
            make_request(engine, request.messages, request.sampling, ends, limit),
            interruption=lambda: FINISH_INTERRUPTED if stop.is_set() else "",
            written=written,
        )
        stream, finish = TextStream(engine, written, request.end.stop, prompt), ""
        answer = IterativeAnswer(engine, imports, import_paths, statistics, stream, started)
        recorder = RunRecorder(engine, owner, written)
        with closing(answer.strides(ralm)) as strides:
            for stride in strides:
                recorder.observe(stride, ralm.prompt)
                yield from answer.events(stride, ralm.prompt)
                finish = stride.finish
        statistics.seconds = perf_counter() - started
        yield Retrieved(answer.passages)
        yield Finished(finish, statistics, request.sampling.seed)


class RunRecorder:
    """Records the confirmed steps of an answer for drafting, run by run.

    A run is written under one passage: it belongs to the chat, to that passage's document, and to
    those of the passages before, from which the answer so far is. Rolled-back steps are never seen.

    Args:
        owner: of what is given passages of some documents, by their keys.
        written: tokens of the answer so far.
    """

    def __init__(self, engine: Engine, owner: Owner, written: Sequence[int]) -> None:
        self._recorders = recorders(engine.observers)
        self._owner = owner
        self._tokens = list(written)
        self._documents = set[bytes]()

    def observe(self, stride: ConfirmedStride, prompt: MakePrompt) -> None:
        """Record the steps of a confirmed stride."""
        for step in stride.steps:
            if step.prefill:  # the passage is another one, or was read again
                self._begin(step, stride.passage, prompt)
            for recorder in self._recorders:
                recorder.observe(step)
            self._tokens += step.tokens

    def _begin(self, step: Step, passage: Passage | None, prompt: MakePrompt) -> None:
        before = prompt(passage)
        if passage is not None and before != prompt(None):
            self._documents.add(passage.text)
        context = Context([*before, *self._tokens, *step.tokens], step.hidden[-1], 0.0)
        set_recording_owner(self._recorders, self._owner(self._documents))
        for recorder in self._recorders:
            recorder.begin(context)


class IterativeAnswer:
    """An answer in progress, which began at `started`, by `perf_counter`; `passages` are those it
    has used so far."""

    def __init__(
        self,
        engine: Engine,
        imports: ImportedTexts,
        import_paths: frozenset[str],
        statistics: Statistics,
        stream: TextStream,
        started: float,
    ) -> None:
        self.passages: tuple[FoundPassage, ...] = ()
        self._engine = engine
        self._imports = imports
        self._statistics = statistics
        self._figures = RalmStatistics()
        self._import_paths = import_paths
        self._started = started
        self._known: set[int] = set()
        self._stream = stream

    def strides(self, request: RalmRequest) -> Generator[ConfirmedStride]:
        """RaLMSpec with prefetching, OS3, and drafts across strides.

        Verification is not asynchronous: ranking is Python, which a model on another thread waits
        for at each call. Writing during searches took 1.5 to 1.8 times as long, on two busy cores.
        """
        engine = self._engine
        writer = StrideWriter(
            engine.target, engine.drafters, engine.budget, request, across=bool(engine.drafters)
        )
        base = self._imports.knowledge_base(self._import_paths)
        scheduler = self._imports.stride_scheduler(self._import_paths)
        return SpeculativeRalm(
            writer,
            base,
            request,
            scheduler,
            self._figures,
            prefetch=PREFETCH,
            asynchronous=False,
        ).write()

    def events(self, stride: ConfirmedStride, prompt: MakePrompt) -> Generator[Event]:
        """The events of a confirmed stride; a passage that does not fit is not cited."""
        passage = stride.passage
        read = passage is not None and prompt(passage) != prompt(None)
        if passage is not None and read and passage.id not in self._known and stride.steps:
            self._known.add(passage.id)
            found = self._imports.locate(passage, self._import_paths)
            if found is not None:
                self.passages = (*self.passages, found)
                yield Retrieved(self.passages)
        for step in stride.steps:
            last = bool(stride.finish) and step is stride.steps[-1]
            yield count_step(
                self._engine, self._stream, self._statistics, step, self._started, last=last
            )
        yield Speculated(replace(self._figures))


def count_step(
    engine: Engine,
    stream: TextStream,
    statistics: Statistics,
    step: Step,
    started: float,
    *,
    last: bool = False,
) -> Wrote:
    """Count a confirmed step of an answer that began at `started`, by `perf_counter`.

    Args:
        last: no step follows.
    """
    if not statistics.tokens:
        statistics.first_token_seconds = perf_counter() - started
    statistics.observe(step)
    status = engine.budget.status(step.position)
    statistics.compare(step, status)
    return Wrote(stream.pieces(step, last=last), step, status)


def make_request(
    engine: Engine,
    messages: Sequence[Message],
    sampling: Sampling,
    stop: StopCriteria,
    limit: int = 0,
) -> RalmRequest:
    """A request to answer the last of `messages`, with one passage at a time before it.

    Args:
        limit: longest answer that prompts leave room for; 0 for that of `stop`.
    """
    return RalmRequest(
        prompt=_prompts(engine, messages, limit or stop.limit),
        query=_queries(engine, messages[-1].content),
        draw=make_sampler(sampling),
        stop=stop,
        temperature=sampling.temperature,
        stride=STRIDE_TOKENS,
    )


def _prompts(engine: Engine, messages: Sequence[Message], limit: int) -> MakePrompt:
    """Makes the prompt with a passage, if it fits; each is rendered once."""
    rendered: dict[int | None, list[int]] = {}

    def prompt(passage: Passage | None) -> Sequence[int]:
        number = passage.id if passage is not None else None
        if number not in rendered:
            found = () if passage is None else (passage,)
            passages = fitting(engine, messages, found, limit)
            noted = with_notes(engine.passage_form, messages, passages)
            rendered[number], _ = fit(engine, noted, limit)
        return rendered[number]

    return prompt


def _queries(engine: Engine, question: str) -> Callable[[Sequence[int]], str]:
    """Makes the text of the last tokens of the question and the answer so far."""
    asked = engine.vocabulary.encode(question)

    def query(answer: Sequence[int]) -> str:
        last = [*asked, *answer][-QUERY_TOKENS:]
        return b"".join(map(engine.vocabulary.piece, last)).decode("utf-8", "replace")

    return query
