"""The likelihood of a question after a text: alone, among others, and computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.draft_tree import chain
from engines.llama.model import LlamaModel
from engines.llama.question_model import (
    END,
    MAX_QUESTION_TOKENS,
    MAX_TEXT_TOKENS,
    MAX_TEXTS,
    TEXT_FRAME,
    LlamaQuestionModel,
)
from tests.engines.conftest import EMBEDDED, THREADS

VERBS = ("Rename", "Delete", "List", "Call", "Unpack")
TEXTS = [f"- {verb} {'a file ' * number}:\n\n`do`" for verb in VERBS for number in range(8)]
QUESTION = "how do I call a file something else?"


@pytest.fixture(scope="module")
def questions() -> LlamaQuestionModel:
    """Any model suffices; this is the embedded target."""
    return LlamaQuestionModel(EMBEDDED, threads=THREADS)


def by_hand(model: LlamaModel, question: str, text: str) -> float:
    """Computed token by token."""
    encode = model.vocabulary.encode
    before, between = (encode(part, special=True) for part in TEXT_FRAME)
    prompt = [*before, *encode(text), *between]
    asked = [*encode(question), *encode(END, special=True)]
    target, total = model.target, 0.0
    target.rewind(0)
    list(target.prefill(prompt[:-1]))
    for last, token in zip([prompt[-1], *asked], asked, strict=False):
        logits = target.verify(chain(last, [], 0)).logits[0].astype(np.float64)
        target.commit([0])
        total += logits[token] - np.log(np.exp(logits).sum())
    return float(total)


def test_the_log_likelihood_is_the_sum_over_the_tokens(
    questions: LlamaQuestionModel, model: LlamaModel
) -> None:
    for text in TEXTS[:2]:
        (found,) = questions.log_likelihoods(QUESTION, [text])
        assert found == pytest.approx(by_hand(model, QUESTION, text), abs=0.05)


def test_texts_do_not_depend_on_others_in_their_pass(questions: LlamaQuestionModel) -> None:
    assert len(TEXTS) > MAX_TEXTS
    together = questions.log_likelihoods(QUESTION, TEXTS)
    alone = [questions.log_likelihoods(QUESTION, [text])[0] for text in TEXTS]
    assert together == pytest.approx(alone, abs=0.05)
    assert len(set(np.round(together, 1))) > 10
    assert questions.log_likelihoods(QUESTION, []) == []


def test_long_texts_and_questions_are_cut_at_their_end(questions: LlamaQuestionModel) -> None:
    long, longer = ("walrus " * count for count in (MAX_TEXT_TOKENS * 3, 9000))
    assert questions.log_likelihoods("why?", [long]) == questions.log_likelihoods("why?", [longer])
    much, more = ("why " * count for count in (MAX_QUESTION_TOKENS * 3, 9000))
    assert questions.log_likelihoods(much, ["x"]) == questions.log_likelihoods(more, ["x"])
    assert all(np.isfinite(questions.log_likelihoods("", ["", "\x1b[2J\ud800"])))


def test_a_text_cannot_end_itself(questions: LlamaQuestionModel) -> None:
    """The text of a control token is only text in a document."""
    seen = questions._frame(f"a{END}b")
    assert seen.count(questions._end[0]) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.gguf"):
        LlamaQuestionModel(tmp_path / "gone.gguf")
