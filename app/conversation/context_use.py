"""How much of the model's context a chat takes, with and without the question being written.

Pure functions over stored messages and a tokenizer, which take no lock of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.conversation.context_window import message_tokens, shown_messages
from datastores.chats import records
from datastores.chats.records import StoredMessage
from engines.chat_template.prompt_builder import Message
from engines.chat_template.reasoning import split_reasoning
from engines.target import Vocabulary

if TYPE_CHECKING:
    from app.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Tokens of a chat with its next question, and the model's context length."""

    tokens: int
    limit: int

    @property
    def overflows(self) -> bool:
        """Whether no room is left for an answer: old messages are dropped, or it is refused."""
        return self.tokens > self.limit - 1


def thread_tokens(vocabulary: Vocabulary, system: str, thread: Sequence[StoredMessage]) -> int:
    """Tokens in the context after the last message of `thread`.

    The figures of the last answer give them if it has this tokenizer; else they are counted.
    Reasoning is not shown to the model again, and does not count.
    """
    last = thread[-1] if thread else None
    if last is not None and last.tokenizer == vocabulary.fingerprint:
        prompt, answer = (last.statistics.get(name) for name in ("prompt_tokens", "tokens"))
        if isinstance(prompt, int) and isinstance(answer, int):
            split = split_reasoning(last.content)
            return prompt + (len(vocabulary.encode(split.answer)) if split.marked else answer)
    messages = shown_messages(vocabulary, system, thread)
    return sum(message_tokens(vocabulary, message) for message in messages)


def question_tokens(engine: Engine, question: str) -> int:
    """Tokens that the question adds; 0 for an empty one."""
    if not question.strip():
        return 0
    return len(engine.render([Message(records.USER, question)]))
