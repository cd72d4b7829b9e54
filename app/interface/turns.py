"""The kinds of turn a person can begin: a new question, an edited one, the same one again.

Pure functions over a stored thread; nothing here asks, stores or shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.interface.answer import Answer
from app.interface.entries import Question
from app.interface.talk import Turn
from app.interface.thread import parent_of_next
from datastores.records import ASSISTANT, USER, Message


def asking(chat: int, thread: Sequence[Message], text: str) -> Turn:
    """A new question at the end of `thread`."""
    parent = parent_of_next(thread)
    return Turn(
        chat,
        parent,
        text,
        Question(text),
        Answer(),
        lambda answers: answers.answer(chat, parent, text),
        _last(thread),
    )


def editing(thread: Sequence[Message], question: Message, text: str) -> Turn:
    """One more version of `question`."""
    return Turn(
        question.chat,
        question.parent,
        text,
        Question(text),
        Answer(),
        lambda answers: answers.edit(question.id, text),
        _last(thread),
        question,
    )


def regenerating(thread: Sequence[Message]) -> Turn | None:
    """One more answer in place of the last one; None where there is none."""
    if len(thread) < 2 or thread[-1].role != ASSISTANT:
        return None
    question, answer = thread[-2:]
    return Turn(
        answer.chat,
        question.parent,
        "",
        Question(question.content, question.id),
        Answer(),
        lambda answers: answers.regenerate(answer.id),
        answer.id,
    )


def question_before(thread: Sequence[Message], message: Message | None) -> Message | None:
    """The question before `message`, or the last one; None where nothing was asked."""
    questions = [asked for asked in thread if asked.role == USER]
    ids = [asked.id for asked in questions]
    place = ids.index(message.id) if message is not None and message.id in ids else 0
    return questions[place - 1] if questions else None


def other_version(
    thread: Sequence[Message], versions: Mapping[int, tuple[int, ...]], step: int
) -> int | None:
    """The version `step` places on of the lowest message that has one there; None without any.

    Where the lowest is at its last version the one above it moves, so that one pair of keys reaches
    every branch.
    """
    for message in reversed(thread):
        known = versions.get(message.id, (message.id,))
        place = known.index(message.id) + step
        if 0 <= place < len(known):
            return known[place]
    return None


def _last(thread: Sequence[Message]) -> int | None:
    return thread[-1].id if thread else None
