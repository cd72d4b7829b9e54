"""Answering in the words of the imported texts: KNN-LM over the states in which they were read.

Owns which states count, how much, and that the text and figures of such an answer come as those of
any other. Refuses to know how states are searched (`datastores.dense`) and how the distribution is
made of them (`engines.ralm.knn_lm`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from functools import partial
from threading import Event as Flag
from time import perf_counter
from typing import TYPE_CHECKING

from app.conversation.context_window import fit
from app.conversation.events import Dropped, Event, Finished, Interpolated
from app.conversation.generation import (
    FINISH_INTERRUPTED,
    GenerationRequest,
    TextStream,
    stop_criteria,
)
from app.conversation.imported_texts import ImportedTexts
from app.conversation.iterative import count_step
from app.conversation.privacy import owner_of_text
from app.conversation.statistics import Statistics
from app.engine.draft_resources import open_dense
from app.engine.engine import Engine
from engines.ralm.events import RalmStatistics
from engines.ralm.knn_lm import InterpolatedTarget, Interpolation, write_sequentially
from engines.ralm.knn_speculative import PRIOR_ACCURACY, SpeculativeKnn
from engines.ralm.scheduler import OptimalStride
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.sampler import make_sampler
from engines.step import Step

if TYPE_CHECKING:
    from datastores.dense.flat_keys import FlatKeys

INTERPOLATION = Interpolation()
MIN_SPECULATED = 50_000
"""States from which on searches are put off: fewer are searched in half a millisecond."""
MAX_STRIDE = 16
"""Tokens drawn before they are verified, at most: the text waits on the screen for that long."""


def imported_states(engine: Engine, imports: ImportedTexts, import_path: str) -> FlatKeys | None:
    """The states of the imported texts, as far as they are encoded; None if none is.

    Opens the dense index of `engine` if no drafter has.

    Args:
        import_path: the import to which that is limited; empty for all.

    Raises:
        StoreError: a store cannot be read.
    """
    from datastores.dense.index import DenseIndex

    owners = frozenset(map(owner_of_text, imports.texts(import_path)))
    if not owners:
        return None
    if engine.resources.dense is None:
        open_dense(engine.resources, imports.locations, engine.target)
    worker = engine.resources.dense
    assert worker is not None
    states = worker.ask(partial(DenseIndex.flat_keys, owners=owners))
    return states if states is not None and len(states) else None


def generate_with_neighbours(
    engine: Engine,
    states: FlatKeys,
    request: GenerationRequest,
    statistics: Statistics,
    stop: Flag,
) -> Generator[Event]:
    """Answer `request` from the model and from what followed similar `states`.

    As `app.conversation.generation.generate`, whose events and errors it has, with `Interpolated`
    at both ends.
    """
    limit, sequences = request.end.max_tokens, request.end.stop
    with engine.busy:
        started = perf_counter()
        prompt, dropped = fit(engine, request.messages, limit)
        statistics.prompt_tokens = len(prompt)
        yield Interpolated(len(states))
        if dropped := dropped + request.dropped:
            yield Dropped(dropped)
        # What such a pass costs, search included, is not learned for other answers.
        engine = replace(engine, budget=deepcopy(engine.budget))
        ralm = RalmRequest(
            prompt=lambda _: prompt,
            query=lambda _: "",
            draw=make_sampler(request.sampling),
            stop=stop_criteria(engine, limit, sequences),
            temperature=request.sampling.temperature,
            interruption=lambda: FINISH_INTERRUPTED if stop.is_set() else "",
        )
        answer = KnnAnswer(engine, states, ralm)
        stream = TextStream(engine, (), sequences, prompt)
        with closing(answer.steps()) as steps:
            for step in steps:
                yield count_step(engine, stream, statistics, step, started, last=stop.is_set())
        statistics.seconds = perf_counter() - started
        yield Interpolated(len(states), answer.figures)
        yield Finished(answer.writer.finish, statistics, request.sampling.seed)


class KnnAnswer:
    """An answer in progress."""

    def __init__(self, engine: Engine, states: FlatKeys, request: RalmRequest) -> None:
        self.figures = RalmStatistics()
        self._states = states
        self._request = request
        # A target that cannot be rewound cannot take back a wrong token.
        rewinds = engine.target.rollback_rows == engine.target.max_rows
        self._speculates = rewinds and len(states) >= MIN_SPECULATED
        self._target = InterpolatedTarget(
            engine.target, states, INTERPOLATION, keeps=self._speculates
        )
        self.writer = StrideWriter(
            self._target, engine.drafters, engine.budget, request, across=True
        )

    def steps(self) -> Generator[Step]:
        """RaLMSpec with OS3; one search for each pass where that is as fast."""
        if not self._speculates:
            return write_sequentially(self.writer, self._target, self.figures)
        return SpeculativeKnn(
            self.writer,
            self._target,
            self._states,
            INTERPOLATION,
            self._request,
            OptimalStride(asynchronous=False, max_stride=MAX_STRIDE, prior_accuracy=PRIOR_ACCURACY),
            self.figures,
        ).write()
