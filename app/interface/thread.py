"""A stored thread of messages as entries of the transcript. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from app.interface.answer import Answer
from app.interface.entries import Entry, Greeting, Question
from app.interface.talk import Turn
from datastores.records import ASSISTANT, STREAMING, USER, Message

ELSEWHERE = "interrupted"
"""How an answer is shown that another window is still writing: as far as it had come."""

GREETING = (
    "specchat",
    "",
    "A model that runs on this machine alone: nothing you write leaves it.",
    "It gets faster the more you use it.",
)
KEYS = "Enter sends · Ctrl+J makes a new line · F1 shows every key"


def greeting(hint: str) -> Greeting:
    """What stands in an empty chat, with what is to be known of the model."""
    return Greeting((*GREETING, "", *((hint, "") if hint else ()), KEYS))


def entries(messages: Sequence[Message], turn: Turn | None) -> list[Entry]:
    """The entries of a thread; those of the `turn` at hand are live."""
    if turn is not None:
        messages = until(messages, turn.parent)
    shown = [entry for message in messages if (entry := _entry(message))]
    if turn is not None:
        shown += [turn.question, turn.answer]
    return shown


def until(messages: Sequence[Message], last: int | None) -> list[Message]:
    """The messages up to the one with id `last`; none where it is None."""
    ids = [message.id for message in messages]
    return list(messages[: ids.index(last) + 1]) if last in ids else []


def parent_of_next(messages: Sequence[Message]) -> int | None:
    """The message a new question follows: the last answer. A question without one is asked anew."""
    if not messages:
        return None
    last = messages[-1]
    return last.parent if last.role == USER else last.id


def asked(messages: Sequence[Message]) -> list[str]:
    """What the person said, oldest first."""
    return [message.content for message in messages if message.role == USER]


def _entry(message: Message) -> Entry | None:
    if message.role == USER:
        return Question(message.content, message.id)
    if message.role == ASSISTANT:
        finish = ELSEWHERE if message.finish == STREAMING else message.finish
        return Answer(message.content, finish, message.id)
    return None
