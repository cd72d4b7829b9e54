"""Divides the records into those that are learned from and those that measure the result.

A question is held out by its digest, and a topic (a chat, by its first question's) likewise, so
that a record stays on its side in every round, whatever else the buffer holds. Held-out questions
are new to every version, like the questions that the user will ask next. A question that is asked
again is no longer new and is learned from, since it may well be asked once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from datastores.replay_buffer.record import ReplayRecord, shortened

HELD_OUT = 0.15
"""Share of all questions, and of all topics. A chat of one question has one digest for both."""
MAX_MEASURED = 128
"""Tokens of an answer that are measured: of 48 answers, one endless one held 40 % of all tokens."""


@dataclass(frozen=True, slots=True)
class Holdout:
    """The two sides.

    Attributes:
        held_out: records of questions that no `learned` record asks, and of topics that none has.
    """

    learned: Sequence[ReplayRecord]
    held_out: Sequence[ReplayRecord]


def split(records: Iterable[ReplayRecord]) -> Holdout:
    """Divide `records`; held-out ones that share a question or topic with `learned` are dropped."""
    every = list(records)
    times = Counter(record.question for record in every)
    learned = [record for record in every if times[record.question] > 1 or not _is_held_out(record)]
    asked = {record.question for record in learned}
    topics = {record.topic for record in learned if _digest(record.topic) < HELD_OUT}
    held_out = [
        record
        for record in every
        if _is_held_out(record) and record.question not in asked and record.topic not in topics
    ]
    return Holdout(learned, held_out)


def measuring(held_out: Iterable[ReplayRecord]) -> list[ReplayRecord]:
    """`held_out` so that no single answer dominates: its first `MAX_MEASURED` tokens, and only once
    if several questions got it."""
    answers: dict[bytes, ReplayRecord] = {}
    for record in held_out:
        short = shortened(record, MAX_MEASURED)
        answers.setdefault(short.tokens[short.prompt_length :].tobytes(), short)
    return list(answers.values())


def _is_held_out(record: ReplayRecord) -> bool:
    return min(_digest(record.topic), _digest(record.question)) < HELD_OUT


def _digest(key: str) -> float:
    """A number from 0 to 1 that depends on `key` alone."""
    digest = blake2b(key.encode(), digest_size=8, person=b"question").digest()
    return int.from_bytes(digest) / 2**64
