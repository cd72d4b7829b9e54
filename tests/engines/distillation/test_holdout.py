"""Held-out questions and topics are new to every version."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from engines.distillation.holdout import HELD_OUT, split

EMPTY = top_of(np.zeros((0, 8), np.float32))
RECORD = ReplayRecord(0, 0, 0.0, "", "", np.zeros(2, np.int32), 1, np.zeros(0, np.int32), *EMPTY)


def ask(question: str, topic: str = "") -> ReplayRecord:
    return replace(RECORD, question=question_key(question), topic=question_key(topic or question))


THREADS = [ask(f"question {number}") for number in range(400)]
HELD = [record for record in THREADS if split([record]).held_out]


def test_a_share_of_questions_is_held_out_whatever_else_is_there() -> None:
    assert len(HELD) == pytest.approx(HELD_OUT * len(THREADS), rel=0.3)
    sides = split(THREADS)
    assert (list(sides.held_out), len(sides.learned)) == (HELD, len(THREADS) - len(HELD))


def test_every_turn_of_a_held_out_topic_is_held_out() -> None:
    turns = [replace(record, topic=HELD[0].topic) for record in THREADS[:50]]
    assert split(turns).learned == []


def test_what_is_asked_again_is_learned_and_no_longer_measures() -> None:
    again, turn = HELD[0], replace(HELD[1], topic=HELD[0].topic)
    sides = split([*HELD, turn, again])
    assert again in sides.learned
    topics = {record.topic for record in sides.held_out}
    assert again.topic not in topics
    assert not {record.question for record in sides.learned} & {
        record.question for record in sides.held_out
    }
