"""Whether passages state answers: whose classifier decides, and what the model reads for it."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from app.engine import answerability as module
from app.engine.answerability import END, FOLDER, FORM, Answerability
from app.engine.asked_notes import AskedNote
from datastores.errors import ModelError
from engines.answerability import (
    MIN_AUC,
    candidate_layers,
    read_classifier,
    write_classifier,
)
from tests.app.scripted_states import LAYER, ScriptedModel, as_read, classifier, letters, unexpected
from tests.engines.scripted import WIDTH

NOTE = AskedNote("dad.md", "He sings.", ("what does he do?", "who sings?"), ("when?",))


def never() -> bool:
    return False


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of classifiers that ship."""
    monkeypatch.setattr(module, "files", lambda package: tmp_path / package)
    folder = tmp_path / "assets" / FOLDER
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def answerability(tmp_path: Path, model: ScriptedModel) -> Answerability:
    (tmp_path / "learned").mkdir()
    return Answerability(model, tmp_path / "learned", unexpected)


def test_a_classifier_of_the_same_weights_ships(
    answerability: Answerability, shipped: Path
) -> None:
    write_classifier(shipped / "another.npz", classifier())
    assert answerability.classifier is None
    write_classifier(shipped / answerability.path.name, classifier(auc=0.93))
    assert answerability.classifier is not None
    assert answerability.classifier.auc == 0.93


def test_one_that_was_learned_here_wins(answerability: Answerability, shipped: Path) -> None:
    write_classifier(shipped / answerability.path.name, classifier(auc=0.93))
    write_classifier(answerability.path, classifier(auc=0.87))
    assert answerability.classifier is not None
    assert answerability.classifier.auc == 0.87


def test_damaged_ones_count_for_nothing_and_are_in_the_log(
    answerability: Answerability, shipped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answerability.path.write_bytes(b"damaged")
    assert answerability.classifier is None
    assert str(answerability.path) in caplog.text
    also = shipped / answerability.path.name
    write_classifier(also, classifier(auc=0.93))
    assert answerability.classifier is not None
    assert answerability.classifier.auc == 0.93
    also.write_bytes(also.read_bytes()[:-50])
    caplog.clear()
    assert answerability.check is None, "which is no error"
    assert str(answerability.path) in caplog.text
    assert str(also) in caplog.text


def test_one_that_is_learned_meanwhile_is_used_at_once(
    answerability: Answerability, model: ScriptedModel
) -> None:
    assert answerability.check is None
    write_classifier(answerability.path, classifier())
    assert log_odds(answerability) == 1.0
    model.tells = lambda text: False
    assert log_odds(answerability) == -1.0
    assert model.opened == [(LAYER,)], "its layer alone, once"


def test_one_that_is_not_reliable_is_not_used(
    answerability: Answerability, model: ScriptedModel
) -> None:
    write_classifier(answerability.path, classifier(auc=MIN_AUC - 0.01))
    assert answerability.check is None
    assert model.opened == []


@pytest.mark.parametrize("hindrance", ["memory", "width"])
def test_what_prevents_the_check_is_reported_once(
    tmp_path: Path, model: ScriptedModel, hindrance: str
) -> None:
    errors = list[ModelError]()
    answerability = Answerability(model, tmp_path, errors.append)
    known = classifier()
    if hindrance == "memory":
        model.problem = "out of memory"
    else:
        known = replace(known, weights=known.weights[:-1])
    write_classifier(answerability.path, known)
    for _ in range(2):
        assert answerability.check is None
    (error,) = errors
    assert str(error) in (
        f"passages are used unchecked: {model.problem}",
        f"passages are used unchecked: {answerability.path.name} is of another model",
    )


def test_after_an_error_nothing_is_checked(tmp_path: Path, model: ScriptedModel) -> None:
    errors = list[ModelError]()
    answerability = Answerability(model, tmp_path, errors.append)
    write_classifier(answerability.path, classifier())
    assert answerability.check is not None
    error = ModelError("the model cannot be run")
    answerability.give_up(error)
    assert answerability.check is None
    assert [str(one) for one in errors] == [f"passages are used unchecked: {error}"]


def log_odds(answerability: Answerability) -> float:
    """Of a passage, which the model is asked about."""
    assert answerability.check is not None
    return answerability.check.log_odds("He sings.", "when?", never)


def test_a_long_passage_loses_its_end(answerability: Answerability, model: ScriptedModel) -> None:
    write_classifier(answerability.path, classifier())
    model.max_tokens = 500
    assert answerability.check is not None
    answerability.check.log_odds("A" * 400 + "B" * 400, "when?", never)
    (text,) = model.texts
    assert len(text) == 500
    begin, end = as_read("A", "when?").split(letters("A\n"))
    assert text == begin + letters("A") * (500 - len(begin) - len(end)) + end


def test_a_long_question_loses_its_beginning(
    answerability: Answerability, model: ScriptedModel
) -> None:
    write_classifier(answerability.path, classifier())
    model.max_tokens = 700
    assert answerability.check is not None
    question = "Q" * 300 + "R" * 300
    answerability.check.log_odds("He sings.", question, never)
    (text,) = model.texts
    whole, end = as_read("He sings.", question), letters(END.format(question=question))
    assert text == whole.removesuffix(end) + end[-model.max_tokens // 2 :]


def test_states_follow_the_order_of_the_questions(
    answerability: Answerability, model: ScriptedModel
) -> None:
    model.tells = lambda text: "when" not in text.replace(letters("when?"), "when")
    layers = answerability.open_layers()
    states = answerability.states(layers, NOTE, never)
    assert layers.layers == candidate_layers(model.layers)
    assert states.shape == (3, len(layers.layers), WIDTH)
    assert states[:, layers.layers.index(LAYER), 0].tolist() == [1, 1, -1]
    assert model.texts == [
        as_read("dad.md\nHe sings.", question) for question in (*NOTE.answered, *NOTE.unanswered)
    ]


def test_those_that_ship_are_reliable() -> None:
    for path in Path(str(files("assets") / FOLDER)).glob("*"):
        assert path.suffix == ".npz"
        assert len(path.stem.removesuffix(f"-{FORM}")) == 32, "found by the hash of the final norm"
        assert read_classifier(path).reliable
