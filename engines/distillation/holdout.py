"""Which records are learned from, and which measure what was learned.

A question is held out by its digest, and a topic (a thread, by its first question's) likewise, so
that a record stays on its side in every round, whatever else the buffer holds. What is held out is
never learned from, under any topic; so it is new to every version, as the questions that a person
will ask next are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from datastores.replay_buffer.record import ReplayRecord

QUESTIONS_HELD_OUT = 0.1
TOPICS_HELD_OUT = 0.1


@dataclass(frozen=True, slots=True)
class Holdout:
    """The two sides.

    Attributes:
        learned: may be learned from.
        held_out: of questions that no `learned` record asks, and of topics that none has.
    """

    learned: Sequence[ReplayRecord]
    held_out: Sequence[ReplayRecord]


def split(records: Iterable[ReplayRecord]) -> Holdout:
    """Divide `records`; those of a held-out question in another topic are on neither side."""
    learned: list[ReplayRecord] = []
    held_out: list[ReplayRecord] = []
    for record in records:
        topic = _share(record.topic, b"topic") < TOPICS_HELD_OUT
        question = _share(record.question, b"question") < QUESTIONS_HELD_OUT
        if topic or question:
            held_out.append(record)
        else:
            learned.append(record)
    asked = {record.question for record in learned}
    return Holdout(learned, [record for record in held_out if record.question not in asked])


def _share(key: str, person: bytes) -> float:
    """A number from 0 to 1 that depends on `key` alone."""
    digest = blake2b(key.encode(), digest_size=8, person=person).digest()
    return int.from_bytes(digest) / 2**64
