"""The conversation turn: a person's message in, events out, everything kept in the history.

Owns what is stored when: the message before the model sees it, the answer while it grows, its
figures at the end. Headless: the interface and `specchat ask` use it alike.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from secrets import randbits
from threading import Event as Flag
from typing import Any

from app.conversation.generation import FINISH_INTERRUPTED, generate
from app.conversation.privacy import ChatIsolation
from app.conversation.statistics import SOURCES_KEY, Provenance, Statistics
from app.conversation.titles import first_title, title
from app.conversation.turn import Event, Finished, Wrote
from app.engine.engine import Engine
from app.sampling_settings import NEW_SEED, with_overrides
from datastores.chats import records
from datastores.chats.answer_writer import AnswerWriter
from datastores.chats.history import History
from datastores.errors import InputError
from engines.chat_message import Message
from engines.sampler import Sampling


class Assistant:
    """Answers in the chats of one history with one loaded model, one turn at a time."""

    def __init__(self, engine: Engine, history: History) -> None:
        self.engine = engine
        self.history = history
        self._seclusion = ChatIsolation(engine, history.name)
        self._stop = Flag()

    def answer(self, chat: int, parent: int | None, text: str) -> Generator[Event]:
        """Store `text` as the person's message under `parent`, then answer it.

        Raises:
            InputError: the text is empty.
            ContextOverflowError: it does not fit into the context; it stays stored.
        """
        if not text.strip():
            raise InputError("the message is empty: type a question")
        message = self.history.add_message(chat, parent, records.USER, text)
        if not self.history.chat(chat).title:
            self.history.rename(chat, first_title(text))
        yield from self.respond(chat, message.id)

    def edit(self, message: int, text: str) -> Generator[Event]:
        """Store `text` as one more version of the person's `message`, then answer it.

        Raises:
            InputError: the message is not the person's, or as for `answer`.
        """
        edited = self.history.message(message)
        if edited.role != records.USER:
            raise InputError("only your own messages can be edited")
        yield from self.answer(edited.chat, edited.parent, text)

    def regenerate(self, answer: int) -> Generator[Event]:
        """Answer once more what `answer` is an answer to; both are kept.

        A greedy model would say the same again: unless greed was the person's choice, it draws.

        Raises:
            InputError: it is no answer.
        """
        given = self.history.message(answer)
        if given.role != records.ASSISTANT or given.parent is None:
            raise InputError("only an answer can be given again")
        yield from self.respond(given.chat, given.parent, again=True)

    def respond(self, chat: int, message: int, *, again: bool = False) -> Generator[Event]:
        """Answer the stored `message`: a first answer or, beside others, one more (`again`).

        Raises:
            InputError: the chat's sampling settings make no sense.
        """
        self._stop.clear()
        settings = self.history.chat(chat)
        sampling = self._sampling(settings.sampling, again)
        messages = self._messages(settings.system, self.history.path(message))
        answer = self.history.add_message(
            chat,
            message,
            records.ASSISTANT,
            "",
            model=self.engine.target.fingerprint,
            tokenizer=self.engine.vocabulary.fingerprint,
            finish=records.STREAMING,
        )
        engine = self._seclusion.engine(settings, (message.content for message in messages))
        yield from self._stored(engine, answer.id, messages, sampling)
        said = self.history.message(answer.id).content
        self._entitle(chat, message, said)
        self._seclusion.answered(chat, engine, said)

    def stop(self) -> None:
        """End the answer that is being generated, from any thread; what was written is kept."""
        self._stop.set()

    def _stored(
        self, engine: Engine, answer: int, messages: Sequence[Message], sampling: Sampling
    ) -> Generator[Event]:
        """Generate into the stored `answer`; however this ends, what was written is kept."""
        statistics, provenance = Statistics(), Provenance()
        writer = AnswerWriter(
            self.history, answer, lambda: figures(statistics, sampling.seed, provenance)
        )
        finish = FINISH_INTERRUPTED
        limit = engine.max_tokens
        events = generate(engine, messages, sampling, limit, statistics, self._stop)
        try:
            with closing(events):
                for event in events:
                    if isinstance(event, Wrote):
                        text = "".join(piece.text for piece in event.pieces)
                        provenance.append(event.pieces)
                        writer.append(text, event.step.tokens)
                    elif isinstance(event, Finished):
                        finish = event.finish
                    yield event
        finally:
            writer.close(finish)

    def _entitle(self, chat: int, message: int, answer: str) -> None:
        """Title a chat by its first exchange, unless the person did meanwhile."""
        question = self.history.message(message)
        if question.parent is None:
            present = self.history.chat(chat).title
            better = title(question.content, answer)
            if present == first_title(question.content) and better != present:
                self.history.rename(chat, better)

    def _sampling(self, chosen: Mapping[str, Any], again: bool) -> Sampling:
        """The chat's sampling; without a seed of its own each answer gets a new one."""
        sampling = with_overrides(self.engine.sampling, chosen, "this chat's sampling")
        if again and self.engine.unchosen_temperature and "temperature" not in chosen:
            sampling = replace(sampling, temperature=Sampling().temperature)
        seed = chosen.get("seed", sampling.seed if self.engine.seeded else NEW_SEED)
        return replace(sampling, seed=randbits(32) if seed == NEW_SEED else seed)

    def _messages(self, system: str, thread: Sequence[records.StoredMessage]) -> list[Message]:
        """The thread for the model; kept token ids only where its own tokenizer made them."""
        tokenizer = self.engine.vocabulary.fingerprint
        messages = [Message(records.SYSTEM, system)] if system else []
        for message in thread:
            tokens = message.tokens if message.tokenizer == tokenizer else ()
            messages.append(Message(message.role, message.content, tokens))
        return messages


def figures(statistics: Statistics, seed: int, provenance: Provenance) -> dict[str, object]:
    """What is kept of an answer's statistics."""
    return {**asdict(statistics), "seed": seed, SOURCES_KEY: provenance.runs()}
