"""The ways in which answers use the imported texts, and the generator of each.

A chat's texts are searched once, searched again while the answer is generated, mixed into the
model's distribution (KNN-LM), or not used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from functools import partial
from threading import Event as Flag
from time import perf_counter

from app.chat_settings import (
    DOCS_ITERATIVE,
    DOCS_KNN,
    DOCS_OFF,
    DOCS_ONCE,
    DocsSetting,
    parse_docs,
)
from app.conversation.answer_request import AnswerRequest
from app.conversation.citations import SearchOutcome, stored_documents
from app.conversation.context_window import fit
from app.conversation.continuation import partial_answer
from app.conversation.events import Event, Interpolated, Retrieved
from app.conversation.follow_up import completed
from app.conversation.generation import generate
from app.conversation.imported_texts import ImportedTexts, fitting
from app.conversation.iterative import STRIDE_TOKENS, generate_iteratively
from app.conversation.knn import encoded_states, generate_with_neighbours, searched_chats
from app.conversation.knn_sources import SourceFinder
from app.conversation.passage_check import checked
from app.conversation.privacy import owner_of_answer
from app.conversation.statistics import STATES_KEY, Statistics
from app.engine.engine import Engine
from app.indexing.passage_index import FoundPassage
from datastores.chats.history import HistoryReader
from datastores.chats.records import StoredMessage
from datastores.errors import InputError
from engines.retrieval.question_words import is_small_talk
from engines.target import StoppedError

BORROWED = "an answer in the words of your texts cannot be continued: regenerate it"


@dataclass(frozen=True, slots=True)
class AnswerModes:
    """How answers are generated.

    Attributes:
        history: the person's chats, which KNN-LM searches too.
        default: the mode of chats without a setting of their own.
        chosen: a `DocsSetting` as it is stored, which overrides the chats' settings; empty leaves
            it to them.
    """

    history: HistoryReader
    imports: ImportedTexts | None = None
    default: str = DOCS_ONCE
    chosen: str = ""

    def of(self, docs: str) -> DocsSetting:
        """The setting of a chat that has the setting `docs`."""
        return parse_docs(self.chosen or docs or self.default)

    def retrieve(
        self, engine: Engine, request: AnswerRequest, stop: Flag
    ) -> Generator[Event, None, tuple[FoundPassage, ...] | None]:
        """Search the imported texts for the question of `request`, if its chat does.

        Returns the passages that go before the question; None if there is nothing to search, or to
        search for.
        """
        docs, started = self.of(request.chat.docs), perf_counter()
        if self.imports is None or docs.mode in (DOCS_OFF, DOCS_KNN):
            return None
        unindexed = self.imports.unindexed
        if self.imports.empty and not unindexed:
            return None
        question = completed(request.asked_before, request.asked)
        found = self.imports.find(
            question,
            engine.passage_form,
            engine.vocabulary,
            engine.target.context_length,
            docs.paths,
            request.material,
        )
        if not found and is_small_talk(request.asked):
            return None
        next_best = partial(self.imports.next_best, question, found, docs.paths, request.material)
        try:
            answering = yield from checked(engine, question, found, next_best, stop.is_set)
        except StoppedError:
            found = answering = ()
        stated = self.imports.within_budget(
            answering[: engine.passage_form.max_passages],
            engine.vocabulary,
            engine.target.context_length,
        )
        passages = fitting(engine, request.messages, stated, request.end.max_tokens)
        request.outcome = SearchOutcome(
            read=len(passages),
            too_long=bool(stated) and not passages,
            unindexed=unindexed,
            texts=self.imports.text_count,
            rejected=0 if stated else len(found),
        )
        request.searched_seconds = perf_counter() - started
        yield Retrieved(passages, request.outcome)
        return passages

    def resume(self, engine: Engine, request: AnswerRequest, stopped: StoredMessage) -> None:
        """Make `request` continue the `stopped` answer.

        Raises:
            InputError: it cannot be continued.
            ContextOverflowError: question and answer fill the context.
        """
        mode = self.of(request.chat.docs).mode
        if mode == DOCS_KNN or STATES_KEY in stopped.statistics:
            raise InputError(BORROWED)
        stride = STRIDE_TOKENS if request.passages and mode == DOCS_ITERATIVE else 1
        request.begun_from = stored_documents(stopped.statistics)
        request.begun = partial_answer(stopped, engine, stride, request.end.stop)
        request.sampling = request.begun.sampling(request.sampling)
        prompted = request.generation(engine.passage_form, request.passages or ()).messages
        fit(engine, prompted, request.end.max_tokens, len(request.begun.tokens))

    def generate(
        self, engine: Engine, request: AnswerRequest, statistics: Statistics, stop: Flag
    ) -> Generator[Event]:
        """Answer `request` from its passages, which may change while the answer is generated."""
        docs, passages = self.of(request.chat.docs), request.passages
        if docs.mode == DOCS_KNN:
            return self._generate_worded(engine, request, docs, statistics, stop)
        if passages and self.imports is not None and docs.mode == DOCS_ITERATIVE:
            generation = request.generation(engine.passage_form)
            return generate_iteratively(
                engine,
                self.imports,
                generation,
                statistics,
                stop,
                docs.paths,
                partial(self._owner, request),
            )
        return generate(
            engine, request.generation(engine.passage_form, passages or ()), statistics, stop
        )

    def _owner(self, request: AnswerRequest, documents: Iterable[bytes]) -> str:
        """The owner of what is written under passages of `documents`."""
        given = request.begun_from.union(documents)
        return owner_of_answer(self.history.name, request.chat.id, given)

    def _generate_worded(
        self,
        engine: Engine,
        request: AnswerRequest,
        docs: DocsSetting,
        statistics: Statistics,
        stop: Flag,
    ) -> Generator[Event]:
        """Answer with KNN-LM over the chosen imports, or over all of them and the person's other
        chats; by the model alone if nothing is encoded."""
        imports, generation = self.imports, request.generation(engine.passage_form)
        chats = {} if docs.paths else searched_chats(self.history, request.chat.id)
        states = encoded_states(engine, imports, docs.paths, chats) if imports is not None else None
        if imports is None or states is None:
            yield Interpolated(0)
            yield from generate(engine, generation, statistics, stop)
            return
        # Nothing learns from the answer, as it is not the model's own.
        engine = replace(engine, observers=[])
        sources = SourceFinder(imports, self.history, chats, docs.paths)
        yield from generate_with_neighbours(engine, states, sources, generation, statistics, stop)
