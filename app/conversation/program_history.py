"""What is kept of answers to programs: their texts, in chats of their own, and their token ids.

A program sends its whole conversation with each request. Answers of this process are recognised in
it, so that they keep the token ids that are in the KV cache, and so that the answers of one
conversation share a chat. The questions are not stored.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from datastores.chats.history import History
from datastores.chats.records import ASSISTANT, PROGRAMS, Chat
from datastores.errors import InputError
from datastores.tokens import pack, unpack
from engines.chat_template.prompt_builder import Message

MAX_RECOGNISED = 512
"""Latest answers that are recognised."""
ROOT = b""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer to a program.

    Attributes:
        text: its text without reasoning, with its calls as the model wrote them; empty if its
            calls are to be shown in the form of the chat template instead.
        tokens: the packed ids of `text`; empty if they are not exactly its.
        chat: the chat of its conversation; 0 if that is not stored.
    """

    text: str
    tokens: bytes
    chat: int = 0


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored; see `StoredMessage`."""

    text: str
    tokens: Sequence[int]
    model: str
    tokenizer: str
    finish: str
    figures: Mapping[str, object]


class ProgramHistory:
    """Recognises and stores answers. For the model's thread."""

    def __init__(self, history: History, max_bytes: int) -> None:
        """Store answers in `history`; none if `max_bytes` is 0."""
        self.max_bytes = max_bytes
        self._history = history
        self._given: OrderedDict[bytes, GivenAnswer] = OrderedDict()
        self._texts = self._unused = 0  # chats of texts, and for the next conversation
        self._bytes = history.program_answers().bytes

    @property
    def excess(self) -> int:
        """Bytes stored beyond the limit; 0 or less for none."""
        return self._bytes - self.max_bytes

    def recount(self) -> None:
        """Count what is stored again, after some was deleted."""
        self._bytes = self._history.program_answers().bytes

    def recognised(self, messages: Sequence[Message]) -> list[Message]:
        """`messages` with the token ids of answers of this process."""
        found = []
        for message, key in zip(messages, conversation_keys(messages), strict=True):
            given = self._given.get(key) if message.role == ASSISTANT else None
            if given is not None:
                written = given.text if message.calls else ""
                message = replace(message, tokens=tuple(unpack(given.tokens)), written=written)
            found.append(message)
        return found

    def chat_of(self, messages: Sequence[Message]) -> Chat:
        """The chat of the conversation of `messages`, or else a new one; for a text without
        messages, the one of all texts."""
        for key in reversed(conversation_keys(messages)):
            known = self._given.get(key)
            chat = self._existing(known.chat) if known is not None else None
            if chat is not None:
                return chat
        number = self._unused if messages else self._texts
        chat = self._existing(number) or self._history.create_chat(origin=PROGRAMS)
        if messages:
            self._unused = chat.id
        else:
            self._texts = chat.id
        return chat

    def holds(self, chat: int) -> bool:
        """Whether that chat still exists; on any thread."""
        return self._existing(chat) is not None

    def _existing(self, chat: int) -> Chat | None:
        """The chat of that number; None if it was deleted, as by another process."""
        with suppress(InputError):
            return self._history.chat(chat)
        return None

    def remember(
        self,
        messages: Sequence[Message],
        answer: Message,
        text: str,
        tokens: Sequence[int],
        chat: Chat | None,
    ) -> None:
        """Recognise `answer` to `messages` from now on, as a program sends it back."""
        key = conversation_keys([*messages, answer])[-1]
        given = GivenAnswer(text, pack(tokens), chat.id if chat is not None else 0)
        self._given[key] = given
        self._given.move_to_end(key)
        if len(self._given) > MAX_RECOGNISED:
            self._given.popitem(last=False)

    def store(self, chat: Chat, answer: StoredAnswer) -> None:
        """Store `answer` in `chat`.

        Raises:
            StoreError: it cannot be written.
        """
        last = self._history.chat(chat.id).active
        self._history.add_message(
            chat.id,
            last,
            ASSISTANT,
            answer.text,
            tokens=answer.tokens,
            model=answer.model,
            tokenizer=answer.tokenizer,
            finish=answer.finish,
            statistics=answer.figures,
        )
        self._bytes += len(answer.text.encode()) + len(pack(answer.tokens))
        if chat.id == self._unused:
            self._unused = 0


def conversation_keys(messages: Sequence[Message]) -> list[bytes]:
    """For each message, a digest of the conversation up to it."""
    keys = [ROOT]
    for message in messages:
        calls = [[call.name, call.arguments] for call in message.calls]
        shown = json.dumps([message.role, message.content, calls], sort_keys=True)
        keys.append(hashlib.sha256(keys[-1] + shown.encode()).digest())
    return keys[1:]
