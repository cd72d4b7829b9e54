"""Questions that the draft model knows are answered once, and go on where they were."""

from pathlib import Path

import numpy as np
import pytest

from app.models.discovery import embedded, embedded_draft_model
from app.runtime.known_answers import answer_known, known_questions, known_records
from datastores.errors import StoreError
from datastores.replay_buffer.record import question_key
from engines.distillation.forced import ForcedAnswer
from engines.distillation.holdout import split

QUESTIONS = ["list files", "unpack a tarball", "what is grep?"]


def test_the_embedded_model_has_questions_and_others_have_none(tmp_path: Path) -> None:
    questions = known_questions(embedded(), embedded_draft_model())
    assert len(set(questions)) == len(questions) > 300
    assert known_questions(embedded(), tmp_path / "other.gguf") == []
    assert known_questions(tmp_path / "other.gguf", embedded_draft_model()) == []


def test_some_known_questions_are_held_out() -> None:
    empty = ForcedAnswer([1], [2], np.zeros((1, 100), np.float32), np.zeros((1, 8), np.float32))
    sides = split(
        [empty.record(0, one, one) for one in known_questions(embedded(), embedded_draft_model())]
    )
    assert len(sides.held_out) > 80
    assert len(sides.learned) > 500


def test_answers_are_made_once_and_go_on_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "known.db"
    vocabulary = 4096
    assert known_records(embedded(), path, vocabulary) == []
    killed = answer_known(embedded(), path, QUESTIONS)
    assert next(killed) == 1
    killed.close()
    assert list(answer_known(embedded(), path, QUESTIONS)) == [2, 3]
    assert list(answer_known(embedded(), path, QUESTIONS)) == []
    records = known_records(embedded(), path, vocabulary)
    assert [record.question for record in records] == [question_key(one) for one in QUESTIONS]
    for record in records:
        answer = record.tokens[record.prompt_length :]
        assert record.top_tokens[:, 0].tolist() == answer.tolist()  # greedy


def test_a_buffer_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "known.db"
    list(answer_known(embedded(), path, QUESTIONS[:1]))
    with pytest.raises(StoreError, match="another model"):
        known_records(embedded(), path, 300)
