"""Which draft model belongs to a model, and that one that does not fit costs a line, no answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.bench.decode import answer_question
from app.config import Options, load_config
from app.engine import engine as engine_module
from app.engine.engine import Engine, load
from app.engine.student import choose_student, open_student, student_file
from app.locations import Locations
from app.models.discovery import BUILT_IN, embedded, embedded_student
from datastores.errors import InputError, ModelError
from engines.chat_template.prompt_builder import Message
from engines.llama.context import ContextLimits
from engines.llama.enlarge import Enlargement
from tests.app.scripted import ScriptedVocabulary
from tests.engines.tiny import TinyVocabulary, write_llama


def names(engine: Engine) -> list[str]:
    return [drafter.name for drafter in engine.drafters]


def configured(locations: Locations, student: str, *, model: Path | None = None) -> None:
    locations.settings.write_text(f"model = '{model or ''}'\nstudent = '{student}'\n")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The embedded model under another path: it brings no student."""
    return Path(shutil.copy(embedded(), tmp_path / "copy.gguf"))


def test_the_embedded_model_brings_its_own(locations: Locations) -> None:
    engine = load(Options(drafters=("student",)), locations, light=True)
    assert names(engine) == ["student"]
    answer = answer_question(engine, [Message("user", "what is tar?")], engine.defaults.sampling)
    assert answer.statistics.target_calls
    assert engine.errors == []
    engine.close()
    assert engine.stores.student is None


def test_other_models_have_the_one_in_the_settings(locations: Locations, copy: Path) -> None:
    assert student_file("", copy, locations) is None
    assert student_file(BUILT_IN, copy, locations) == embedded_student()
    assert student_file(str(copy), embedded(), locations) == embedded_student()
    for setting, expected in (("", []), (str(embedded_student()), ["student"])):
        configured(locations, setting, model=copy)
        engine = load(Options(drafters=("student",)), locations)
        assert names(engine) == expected
        assert engine.errors == []


def test_an_enlarged_embedded_model_keeps_its_student(locations: Locations) -> None:
    assert names(load(Options(drafters=("student",)), locations, larger=Enlargement(deeper=1))) == [
        "student"
    ]


def test_another_vocabulary_costs_one_line(
    locations: Locations, tmp_path: Path, copy: Path
) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary())
    configured(locations, str(other), model=copy)
    engine = load(Options(drafters=("prompt", "student")), locations)
    assert names(engine) == ["prompt"]
    [error] = engine.errors
    assert str(error).startswith("other.gguf cannot draft for this model: the two divide ")
    assert "specchat models use --student NAME" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("content", [None, b"", b"GGUF" + bytes(200)])
def test_a_missing_or_damaged_file_costs_one_line(
    locations: Locations, tmp_path: Path, copy: Path, content: bytes | None
) -> None:
    path = tmp_path / "small.gguf"
    if content is not None:
        path.write_bytes(content)
    configured(locations, str(path), model=copy)
    engine = load(Options(drafters=("prompt", "student")), locations)
    assert names(engine) == ["prompt"]
    [error] = engine.errors
    assert "small.gguf" in str(error)
    assert "\n" not in str(error)


def test_a_large_one_is_not_loaded_for_a_single_answer(
    locations: Locations, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(locations, BUILT_IN, model=copy)
    assert "student" in names(load(Options(), locations, light=True))
    monkeypatch.setattr(engine_module, "MAX_LIGHT_BYTES", 1000)
    assert "student" not in names(load(Options(), locations, light=True))
    assert names(load(Options(drafters=("student",)), locations, light=True)) == ["student"]


def test_a_student_whose_memory_cannot_step_back_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ContextLimits(512, max_rows=1, chains_only=True, snapshots=0)
    monkeypatch.setattr("engines.llama.model.measure_limits", lambda *_: limits)
    with pytest.raises(ModelError, match="cannot draft: its cache cannot be rewound"):
        open_student(embedded_student(), ScriptedVocabulary(), 512)


def test_a_choice_is_checked_before_it_is_stored(locations: Locations, tmp_path: Path) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary())
    with pytest.raises(InputError, match="cannot draft for this model: the two divide"):
        choose_student(str(other), locations)
    with pytest.raises(ModelError, match="missing"):
        choose_student("missing", locations)
    assert load_config(locations.settings).student == ""
    for chosen in (BUILT_IN, str(embedded_student()), ""):
        choose_student(chosen, locations)
        assert load_config(locations.settings).student == chosen


def test_answers_are_the_same_while_they_are_recorded(locations: Locations) -> None:
    said = []
    for learn in ("true", "false"):
        locations.settings.write_text(f"learn = {learn}\n")
        # Without drafts: their number depends on times, and near-ties on their number.
        options = Options(drafters=("student",), draft_tokens=0, seed=7, max_tokens=60)
        engine = load(options, locations)
        assert engine.learns == (learn == "true")
        answer = answer_question(
            engine, [Message("user", "what is tar?")], engine.defaults.sampling
        )
        said.append(answer.text)
        engine.close()
        assert engine.errors == []
    assert said[0] == said[1]
    assert not locations.replay.exists(), "an answer outside a chat is not kept"


def test_a_new_student_is_made_for_the_chosen_model(copy: Path, locations: Locations) -> None:
    configured(locations, "new", model=copy)
    engine = load(Options(drafters=("prompt", "student")), locations)
    (error,) = engine.errors
    assert "`specchat models use --student new` makes one" in str(error)
    choose_student("new", locations)
    assert load_config(locations.settings).student == "new"
    path = student_file("new", copy, locations)
    assert path is not None
    written = path.stat().st_mtime_ns
    engine = load(Options(drafters=("student",)), locations)
    assert (names(engine), engine.errors) == (["student"], [])
    assert engine.student_source is not None
    assert engine.student_source.versions.current == 0
    choose_student("new", locations)  # what it learned is not thrown away
    assert path.stat().st_mtime_ns == written


def test_the_embedded_model_needs_no_new_student(locations: Locations) -> None:
    with pytest.raises(InputError, match="has its own draft model"):
        choose_student("new", locations)
    assert load_config(locations.settings).student == ""
