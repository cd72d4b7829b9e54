"""Answering in the words of imported texts and own chats: KNN-LM over the model's states in them.

`datastores.dense` searches the states, `engines.ralm.knn_lm` makes a distribution of them, and
`knn_sources` names the texts.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
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
from app.conversation.knn_sources import SourceFinder
from app.conversation.privacy import owner_of_chat, owner_of_text
from app.conversation.statistics import Statistics
from app.engine.draft_resources import open_dense
from app.engine.engine import Engine
from datastores.chats.history import HistoryReader
from datastores.chats.records import Chat
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
MIN_SPECULATED = 1_000_000
"""Fewer states are searched for each pass. Speculation saves little, as a batch of 16 takes .8 of
single searches: with SmolLM2, two threads and 512 tokens, .92, 1.07, 1.06 and .97 of the time
without it at 50,000, 200,000, 500,000 and a million states.

Asynchronous verification is off: four passes with a search of four keys beside them took 1.03, .95,
1.05 and .93 of the time of the same search after them, and 1.01, .98, 1.04 and .94 of the CPU
seconds, on two cores; a search takes .7, 1.0, 1.8 and 3.2 ms of CPU, a pass 9."""
MAX_STRIDE = 16
"""Most tokens drawn before they are verified: the screen does not show them until then."""


def searched_chats(history: HistoryReader, asking: int) -> dict[str, Chat]:
    """The person's chats that an answer in the chat `asking` is worded like, by owner.

    Not that chat itself: what it says is in the prompt, and another answer to the same question
    would be worded like the one before. Private ones never are.

    Raises:
        StoreError: the history cannot be read.
    """
    chats = (chat for chat in history.chats() if chat.id != asking and not chat.private)
    return {owner_of_chat(history.name, chat.id): chat for chat in chats}


def encoded_states(
    engine: Engine, imports: ImportedTexts, import_paths: frozenset[str], chats: Collection[str]
) -> FlatKeys | None:
    """The states of texts that are encoded; None if none is.

    Opens the dense index of `engine` if no drafter has.

    Args:
        import_paths: the only imports that are used; empty for all.
        chats: owners of own chats.

    Raises:
        StoreError: a store cannot be read.
    """
    from datastores.dense.index import DenseIndex

    owners = frozenset((*map(owner_of_text, imports.texts(import_paths)), *chats))
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
    sources: SourceFinder,
    request: GenerationRequest,
    statistics: Statistics,
    stop: Flag,
) -> Generator[Event]:
    """Answer `request` from the model and from the tokens that followed similar `states`.

    Like `app.conversation.generation.generate`, with `Interpolated` at both ends.
    """
    limit, sequences = request.end.max_tokens, request.end.stop
    with engine.busy:
        started = perf_counter()
        prompt, dropped = fit(engine, request.messages, limit)
        statistics.prompt_tokens = len(prompt)
        yield Interpolated(len(states))
        if dropped := dropped + request.dropped:
            yield Dropped(dropped)
        # A copy, as the cost of such a pass includes its search and is no measure for others.
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
        found = sources.find(engine, states, answer.contributions, statistics.tokens)
        yield Interpolated(len(states), answer.figures, found)
        yield Finished(answer.writer.finish, statistics, request.sampling.seed)


class KnnAnswer:
    """An answer in progress."""

    def __init__(self, engine: Engine, states: FlatKeys, request: RalmRequest) -> None:
        self.figures = RalmStatistics()
        self._states = states
        self._request = request
        # A wrong token can only be rolled back on a target that can be rewound.
        rewinds = engine.target.rollback_rows == engine.target.max_rows
        self._speculates = rewinds and len(states) >= MIN_SPECULATED
        self._target = InterpolatedTarget(engine.target, states, INTERPOLATION)
        self.contributions = self._target.contributions
        self.writer = StrideWriter(
            self._target, engine.drafters, engine.budget, request, across=True
        )

    def steps(self) -> Generator[Step]:
        """RaLMSpec with OS3, or one search for each pass where that is as fast."""
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
