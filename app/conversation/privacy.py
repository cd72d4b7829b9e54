"""Keeps private chats, secrets and loops out of everything that drafts, indexes or learns.

A secret (a key, a password) belongs to the transcript alone, and so does an answer that looped
until it was stopped. `datastores.corpus` excludes them from the stores built on it; this module
excludes them from drafters and observers in memory, and from the dense index, which records answers
while they are generated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from app.engine.draft_resources import (
    forget_answers,
    keep_answer,
    set_recording_owner,
)
from app.engine.drafters import make_drafters
from app.engine.engine import Engine
from datastores.chats.records import USER, Chat
from datastores.owners import joined
from datastores.redaction import redact
from datastores.replay_buffer.record import question_key
from datastores.replay_buffer.writer import AnswerDetails
from engines.chat_template.prompt_builder import Message

CHAT_PREFIX = "chat:"
TEXT_PREFIX = "text:"
"""Prefixes of owners in stores that are not built from the corpus."""

Offered = Callable[[], bool]
"""Whether a chat still exists and is not private, and the documents of its answer exist."""


class ChatIsolation:
    """Chooses the engine for a chat: the shared one, or an isolated one."""

    def __init__(self, engine: Engine, history: str) -> None:
        """`history` is the history's name."""
        self._engine = engine
        self._history = history
        self._chat: int | None = None
        self._isolated = engine

    def engine(
        self,
        chat: Chat,
        texts: Iterable[str],
        documents: Iterable[bytes] = (),
        *,
        after_loop: bool = False,
    ) -> Engine:
        """The engine that answers in `chat`, whose messages so far are `texts`.

        The isolated one has no observers, and drafters of its own, whose memory is used in this
        chat alone and discarded with it.

        Args:
            documents: keys of the documents whose passages are in the prompt.
            after_loop: whether one of the answers looped until it was stopped; the dense index then
                records nothing, as it would record that answer with what follows.
        """
        keep_answer(self._engine.observers, None)  # the previous one, if it failed
        if not chat.private and not any(redact(text)[1] for text in texts):
            self._chat = None
            owner = owner_of_answer(self._history, chat.id, documents)
            set_recording_owner(self._engine.observers, None if after_loop else owner)
            return self._engine
        if self._engine.resources.dense is not None:
            self._engine.resources.dense.leave()
        if chat.id != self._chat:
            self._isolated = self.unsaved_engine()
            self._chat = chat.id
        return self._isolated

    def unsaved_engine(self) -> Engine:
        """A new isolated engine, for an answer that is not stored."""
        names = [drafter.name for drafter in self._engine.drafters]
        drafters = make_drafters(names, self._engine.resources)
        return replace(self._engine, drafters=drafters, observers=[])

    def answered(
        self,
        chat: Chat,
        engine: Engine,
        thread: Sequence[Message],
        text: str,
        cached: int,
        offered: Offered,
        documents: Iterable[bytes] = (),
        *,
        looped: bool = False,
    ) -> None:
        """Record the answer `text` to `thread`, if `engine` is the shared one; forget the chat
        instead if the answer holds a secret.

        Args:
            cached: number of tokens in the KV cache that belong to the chat.
            offered: called later on other threads, before or after the chat is recorded.
            documents: as for `engine`.
            looped: whether the answer looped until it was stopped; it is then not drafted from.

        Raises:
            StoreError: the dense index cannot be written.
        """
        if engine is not self._engine:
            return
        owner = owner_of_chat(self._history, chat.id)
        if redact(text)[1]:
            keep_answer(engine.observers, None)
            forget_loaded(engine, owner)
            return
        if engine.states is not None:
            engine.states.keep(owner, cached, offered)
        if looped:
            keep_answer(engine.observers, None)
            forget_answers(engine.drafters)
            engine.resources.ask_dense(lambda index: index.forget(owner))
            return
        if engine.resources.dense is not None:
            # All of the chat: parts of the answer may belong to some of the documents alone.
            engine.resources.dense.keep(owner, offered)
        if engine.learns:
            questions = [message.content for message in thread if message.role == USER]
            question, topic = question_key(questions[-1]), question_key(questions[0])
            recorded = owner_of_answer(self._history, chat.id, documents)
            details = AnswerDetails(recorded, chat.id, question, topic, offered)
            keep_answer(engine.observers, details)


def forget_loaded(engine: Engine, owner: str) -> None:
    """Make a loaded engine forget what it recorded under `owner`. Drafters that remember answers
    forget all of them, as they cannot tell them apart.

    Raises:
        StoreError: a store cannot be written.
    """
    forget_answers(engine.drafters)
    with ExitStack() as steps:
        steps.callback(engine.resources.forget, owner)
        if engine.states is not None:
            engine.states.forget(owner)


def owner_of_chat(history: str, chat: int) -> str:
    """The owner of a chat's texts in stores that are not built from the corpus.

    It includes the history's name, as the history after a damaged one numbers chats from 1 again.
    """
    return f"{CHAT_PREFIX}{history}:{chat}"


def chat_of(owner: str, history: str) -> int | None:
    """The chat whose `owner_of_chat` is `owner`; None if it is of another history."""
    name, _, chat = owner.removeprefix(CHAT_PREFIX).rpartition(":")
    return int(chat) if name == history and chat.isdecimal() else None


def owner_of_answer(history: str, chat: int, documents: Iterable[bytes]) -> str:
    """The owner of an answer in a chat, given passages of `documents`: the chat and all of them."""
    return joined([owner_of_chat(history, chat), *map(owner_of_text, sorted(documents))])


def owner_of_text(key: bytes) -> str:
    """The owner of an imported text, by its key in the corpus."""
    return f"{TEXT_PREFIX}{key.hex()}"
