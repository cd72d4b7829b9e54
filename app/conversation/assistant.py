"""Answers in stored chats: a question in, events out, everything stored in the history.

Owns what is stored when: the question before the model sees it, the answer while it is generated,
its statistics at the end. The interface and `specchat ask` use it alike, through
`app.runtime.model_thread`. Refuses to know threads and screens.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from secrets import randbits
from threading import Event as Flag
from typing import Any

from app.conversation.attachments import Attachment, compose, question_of
from app.conversation.citations import CITATIONS_KEY, citation_records
from app.conversation.documents import Documents, fitting, with_notes
from app.conversation.events import Event, Finished, Interpolated, Retrieved, Wrote
from app.conversation.generation import FINISH_INTERRUPTED, generate, require_fit
from app.conversation.iterative import generate_iteratively
from app.conversation.knn import generate_with_neighbours, imported_states
from app.conversation.privacy import ChatIsolation
from app.conversation.statistics import SOURCES_KEY, STATES_KEY, Provenance, Statistics
from app.conversation.titles import first_title, title
from app.engine.engine import Engine
from app.indexing.passage_index import FoundPassage
from app.sampling_settings import (
    DOCS_ITERATIVE,
    DOCS_KNN,
    DOCS_OFF,
    DOCS_ONCE,
    NEW_SEED,
    with_overrides,
)
from datastores.chats import records
from datastores.chats.answer_writer import AnswerWriter
from datastores.chats.history import History
from datastores.chats.usage import MODEL_KEY, STUDENT_KEY
from datastores.errors import InputError
from datastores.tokens import common_prefix
from engines.chat_template.prompt_builder import Message
from engines.sampler import Sampling


class Assistant:
    """Answers in the chats of one history with one loaded model, one turn at a time."""

    def __init__(
        self,
        engine: Engine,
        history: History,
        documents: Documents | None = None,
        *,
        default_docs: str = DOCS_ONCE,
        docs: str = "",
        source: str = "",
    ) -> None:
        """Answer from `documents` too, where they are given and a question concerns them.

        Args:
            default_docs: how they are searched in chats without a setting of their own.
            docs: how they are searched in every chat; empty leaves that to the chats.
            source: the import to which that is limited; empty for all.
        """
        self.engine = engine
        self.history = history
        self._documents = documents
        self._default_docs = default_docs
        self._docs = docs
        self._source = source
        self._isolation = ChatIsolation(engine, history.name)
        self._stop = Flag()

    def answer(
        self, chat: int, parent: int | None, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        """Store `text` as the user's message under `parent`; the generator answers it.

        Raises:
            InputError: the text is empty.
            ContextOverflowError: it does not fit into the context; nothing is stored.
        """
        if not text.strip():
            raise InputError("the message is empty: type a question")
        content, attached = compose(text, attachments)
        system = _system(self.history.chat(chat).system)
        require_fit(
            self.engine, [*system, Message(records.USER, content)], attached=bool(attachments)
        )
        message = self.history.add_message(
            chat, parent, records.USER, content, attachments=attached
        )
        if not self.history.chat(chat).title:
            self.history.rename(chat, first_title(text))
        return self.respond(chat, message.id)

    def edit(
        self, message: int, text: str, attachments: Sequence[Attachment] = ()
    ) -> Generator[Event]:
        """Store `text` as another version of the user's `message`; the generator answers it.

        Raises:
            InputError: the message is not the user's, or as for `answer`.
        """
        edited = self.history.message(message)
        if edited.role != records.USER:
            raise InputError("only your own messages can be edited")
        return self.answer(edited.chat, edited.parent, text, attachments)

    def regenerate(self, answer: int) -> Generator[Event]:
        """Answer the question of the stored `answer` once more; both answers are kept.

        At temperature 0 the model would repeat itself, so unless the user chose that temperature,
        the new answer is sampled.

        Raises:
            InputError: it is not an answer.
            ContextOverflowError: its question does not fit into this model's context.
        """
        answered = self.history.message(answer)
        if answered.role != records.ASSISTANT or answered.parent is None:
            raise InputError("only an answer can be regenerated")
        system = _system(self.history.chat(answered.chat).system)
        question = self.history.message(answered.parent).content
        require_fit(self.engine, [*system, Message(records.USER, question)])
        return self.respond(answered.chat, answered.parent, again=True)

    def respond(self, chat: int, message: int, *, again: bool = False) -> Generator[Event]:
        """Answer the stored `message`, for the first time or once more (`again`).

        However this ends, what was generated is stored; an error before the first word leaves no
        answer behind.

        Raises:
            InputError: the chat's sampling settings are invalid.
        """
        self._stop.clear()
        settings = self.history.chat(chat)
        sampling = self._sampling(settings.sampling, again)
        path = self.history.path(message)
        messages = self._messages(settings.system, path)
        # Before the answer is stored: if retrieval fails, no empty answer is left behind.
        passages = yield from self._retrieve(messages, question_of(path[-1]), settings.docs)
        answer = self._add_answer(chat, message)
        engine = self._isolation.engine(settings, (message.content for message in messages))
        statistics, provenance = Statistics(), Provenance()
        states: int | None = None
        writer = AnswerWriter(
            self.history,
            answer,
            lambda: {
                MODEL_KEY: engine.name,
                STUDENT_KEY: engine.stores.student_version,
                **stored_figures(statistics, sampling.seed, provenance, passages, states),
            },
        )
        finish = FINISH_INTERRUPTED
        events = self._generate(engine, messages, passages, settings.docs, sampling, statistics)
        try:
            with closing(events):
                for event in events:
                    if isinstance(event, Retrieved):
                        passages = event.passages
                    elif isinstance(event, Interpolated):
                        states = event.states
                    elif isinstance(event, Wrote):
                        provenance.append(event.pieces)
                        text = "".join(piece.text for piece in event.pieces)
                        writer.append(text, event.step.tokens)
                    elif isinstance(event, Finished):
                        finish = event.finish
                    yield event
        except Exception:
            finish = records.FAILED
            raise
        finally:
            writer.close(finish)
            content = self.history.message(answer).content
            offered = partial(self._is_offered, chat)
            cached = self._cached(messages, documents=bool(passages))
            self._isolation.answered(settings, engine, messages, content, cached, offered)
            if finish == records.FAILED and not content:
                self.history.discard_answer(answer, settings.active)
        self._update_title(chat, message, content)

    def answer_unsaved(
        self,
        parent: int | None,
        text: str,
        system: str = "",
        attachments: Sequence[Attachment] = (),
    ) -> Generator[Event]:
        """Answer `text` as if it followed the stored message `parent`; nothing is stored anywhere.

        Args:
            parent: None asks as in a new chat whose system prompt is `system`.

        Raises:
            InputError: the text is empty, or the chat's sampling settings are invalid.
            ContextOverflowError: it does not fit into the context.
        """
        if not text.strip():
            raise InputError("the message is empty: type a question")
        self._stop.clear()
        sampling, thread = self._sampling({}, again=False), self._messages(system, ())
        docs = ""
        if parent is not None:
            path = self.history.path(parent)
            settings = self.history.chat(path[-1].chat)
            sampling = self._sampling(settings.sampling, again=False)
            thread, docs = self._messages(settings.system, path), settings.docs
        messages = [*thread, Message(records.USER, compose(text, attachments)[0])]
        passages = yield from self._retrieve(messages, text, docs)
        engine = self._isolation.unsaved_engine()
        yield from self._generate(engine, messages, passages, docs, sampling, Statistics())

    def stop(self) -> None:
        """End the answer in progress, from any thread; what was generated is kept."""
        self._stop.set()

    def _cached(self, messages: Sequence[Message], *, documents: bool) -> int:
        """How many of the target's first tokens are those of a chat, whose next prompt repeats
        them; documents stood before the last question alone."""
        tokens = self.engine.target.tokens
        return common_prefix(tokens, self.engine.render(messages)) if documents else len(tokens)

    def _is_offered(self, chat: int) -> bool:
        """Whether `chat` is there, and not private."""
        return any(one.id == chat and not one.private for one in self.history.chats())

    def _add_answer(self, chat: int, message: int) -> int:
        """Store an empty answer to `message` and return its id."""
        answer = self.history.add_message(
            chat,
            message,
            records.ASSISTANT,
            "",
            model=self.engine.target.fingerprint,
            tokenizer=self.engine.vocabulary.fingerprint,
            finish=records.STREAMING,
        )
        return answer.id

    def _retrieve(
        self, messages: Sequence[Message], question: str, docs: str
    ) -> Generator[Event, None, tuple[FoundPassage, ...] | None]:
        """Search the imported texts for `question`, as a chat with the setting `docs` does.

        Returns what goes before it, the last of `messages`; None if there is nothing to search.
        """
        off = self._mode(docs) in (DOCS_OFF, DOCS_KNN)
        if self._documents is None or off:
            return None
        unindexed = self._documents.unindexed
        if self._documents.empty and not unindexed:
            return None
        engine = self.engine
        found = self._documents.relevant(
            question,
            engine.max_passages,
            engine.vocabulary,
            engine.target.context_length,
            self._source,
        )
        passages = fitting(engine, messages, found, engine.max_tokens)
        yield Retrieved(passages, unindexed)
        return passages

    def _mode(self, docs: str) -> str:
        """How a chat with the setting `docs` uses the imported texts."""
        return self._docs or docs or self._default_docs

    def _generate(
        self,
        engine: Engine,
        messages: Sequence[Message],
        passages: Sequence[FoundPassage] | None,
        docs: str,
        sampling: Sampling,
        statistics: Statistics,
    ) -> Generator[Event]:
        """Answer the last of `messages` from `passages`, or from what they change to meanwhile."""
        limit = engine.max_tokens
        if self._mode(docs) == DOCS_KNN:
            return self._generate_worded(engine, messages, sampling, statistics)
        if passages:
            # The dense index would keep the passages' tokens under this chat's name.
            engine = replace(engine, observers=[])
        if passages and self._documents is not None and self._mode(docs) == DOCS_ITERATIVE:
            return generate_iteratively(
                engine,
                self._documents,
                messages,
                sampling,
                limit,
                statistics,
                self._stop,
                self._source,
            )
        prompted = with_notes(messages, passages or ())
        return generate(engine, prompted, sampling, limit, statistics, self._stop)

    def _generate_worded(
        self,
        engine: Engine,
        messages: Sequence[Message],
        sampling: Sampling,
        statistics: Statistics,
    ) -> Generator[Event]:
        """Answer in the words of the imported texts; by the model alone if none is encoded."""
        limit, documents = engine.max_tokens, self._documents
        states = imported_states(engine, documents, self._source) if documents is not None else None
        if states is None:
            yield Interpolated(0)
            yield from generate(engine, messages, sampling, limit, statistics, self._stop)
            return
        # Nothing learns from it: these are not the model's own words.
        engine = replace(engine, observers=[])
        yield from generate_with_neighbours(
            engine, states, messages, sampling, limit, statistics, self._stop
        )

    def _update_title(self, chat: int, message: int, answer: str) -> None:
        """Title a chat by its first exchange, unless the user renamed it."""
        question = self.history.message(message)
        if question.parent is None:
            current = self.history.chat(chat).title
            asked = question_of(question)
            better = title(asked, answer)
            if current == first_title(asked) and better != current:
                self.history.rename(chat, better)

    def _sampling(self, chosen: Mapping[str, Any], again: bool) -> Sampling:
        """The chat's sampling settings; without a fixed seed each answer gets a new one."""
        sampling = with_overrides(self.engine.sampling, chosen, "this chat's sampling")
        if again and self.engine.default_temperature and "temperature" not in chosen:
            sampling = replace(sampling, temperature=Sampling().temperature)
        seed = chosen.get("seed", sampling.seed if self.engine.seeded else NEW_SEED)
        return replace(sampling, seed=randbits(32) if seed == NEW_SEED else seed)

    def _messages(self, system: str, thread: Sequence[records.StoredMessage]) -> list[Message]:
        """The thread as model input, with stored token ids if they are of the same tokenizer."""
        tokenizer = self.engine.vocabulary.fingerprint
        messages = _system(system)
        for message in thread:
            tokens = message.tokens if message.tokenizer == tokenizer else ()
            messages.append(Message(message.role, message.content, tokens))
        return messages


def _system(prompt: str) -> list[Message]:
    """The system prompt as a message; none where it is empty."""
    return [Message(records.SYSTEM, prompt)] if prompt else []


def stored_figures(
    statistics: Statistics,
    seed: int,
    provenance: Provenance,
    passages: Sequence[FoundPassage] | None = None,
    states: int | None = None,
) -> dict[str, object]:
    """The statistics of an answer as they are stored with it, with what it was answered from.

    Args:
        passages: None if no text was searched.
        states: of imported texts that it was worded from; None for the model's own words.
    """
    figures = {**asdict(statistics), "seed": seed, SOURCES_KEY: provenance.runs()}
    if states is not None:
        figures[STATES_KEY] = states
    return figures if passages is None else {**figures, CITATIONS_KEY: citation_records(passages)}
