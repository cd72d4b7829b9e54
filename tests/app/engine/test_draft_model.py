"""Which draft model belongs to a model, and that one that does not fit costs a line, no answer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.bench.decode import answer_question
from app.config import Options, load_config
from app.engine import loading
from app.engine.draft_model import choose_draft_model, draft_model_file, open_draft_model
from app.engine.engine import Engine
from app.engine.loading import load
from app.locations import Locations
from app.models.discovery import BUILT_IN, embedded, embedded_draft_model
from datastores.errors import InputError, ModelError
from engines.chat_template.prompt_builder import Message
from engines.llama.context import ContextLimits
from engines.llama.enlarge import Enlargement
from tests.app.scripted import ScriptedVocabulary
from tests.engines.tiny import TinyVocabulary, write_llama


def names(engine: Engine) -> list[str]:
    return [drafter.name for drafter in engine.drafters]


def configured(locations: Locations, draft_model: str, *, model: Path | None = None) -> None:
    locations.settings.write_text(f"model = '{model or ''}'\nstudent = '{draft_model}'\n")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The embedded model under another path: it brings no draft model."""
    return Path(shutil.copy(embedded(), tmp_path / "copy.gguf"))


def test_the_embedded_model_brings_its_own(locations: Locations) -> None:
    engine = load(Options(drafters=("draft-model",)), locations, light=True)
    assert names(engine) == ["draft-model"]
    answer = answer_question(engine, [Message("user", "what is tar?")], engine.defaults.sampling)
    assert answer.statistics.steps
    assert engine.errors == []
    engine.close()
    assert engine.resources.draft_model is None


def test_other_models_have_the_one_in_the_settings(locations: Locations, copy: Path) -> None:
    assert draft_model_file("", copy, locations) is None
    assert draft_model_file(BUILT_IN, copy, locations) == embedded_draft_model()
    assert draft_model_file(str(copy), embedded(), locations) == embedded_draft_model()
    for setting, expected in (("", []), (str(embedded_draft_model()), ["draft-model"])):
        configured(locations, setting, model=copy)
        engine = load(Options(drafters=("draft-model",)), locations)
        assert names(engine) == expected
        assert engine.errors == []


def test_an_enlarged_embedded_model_keeps_its_draft_model(locations: Locations) -> None:
    assert names(
        load(Options(drafters=("draft-model",)), locations, larger=Enlargement(deeper=1))
    ) == ["draft-model"]


def test_another_vocabulary_costs_one_line(
    locations: Locations, tmp_path: Path, copy: Path
) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary())
    configured(locations, str(other), model=copy)
    engine = load(Options(drafters=("prompt", "draft-model")), locations)
    assert names(engine) == ["prompt"]
    [error] = engine.errors
    assert str(error).startswith("other.gguf cannot draft for this model: the two divide ")
    assert "specchat models use --draft-model NAME" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("content", [None, b"", b"GGUF" + bytes(200)])
def test_a_missing_or_damaged_file_costs_one_line(
    locations: Locations, tmp_path: Path, copy: Path, content: bytes | None
) -> None:
    path = tmp_path / "small.gguf"
    if content is not None:
        path.write_bytes(content)
    configured(locations, str(path), model=copy)
    engine = load(Options(drafters=("prompt", "draft-model")), locations)
    assert names(engine) == ["prompt"]
    [error] = engine.errors
    assert "small.gguf" in str(error)
    assert "\n" not in str(error)


def test_a_large_one_is_not_loaded_for_a_single_answer(
    locations: Locations, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(locations, BUILT_IN, model=copy)
    assert "draft-model" in names(load(Options(), locations, light=True))
    monkeypatch.setattr(loading, "MAX_LIGHT_BYTES", 1000)
    assert "draft-model" not in names(load(Options(), locations, light=True))
    assert names(load(Options(drafters=("draft-model",)), locations, light=True)) == ["draft-model"]


def test_a_draft_model_whose_memory_cannot_step_back_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = ContextLimits(512, max_rows=1, chains_only=True, snapshots=0)
    monkeypatch.setattr("engines.llama.model.measure_limits", lambda *_: limits)
    with pytest.raises(ModelError, match="cannot draft: its cache cannot be rewound"):
        open_draft_model(embedded_draft_model(), ScriptedVocabulary(), 512)


def test_a_choice_is_checked_before_it_is_stored(locations: Locations, tmp_path: Path) -> None:
    other = write_llama(tmp_path / "other.gguf", TinyVocabulary())
    with pytest.raises(InputError, match="cannot draft for this model: the two divide"):
        choose_draft_model(str(other), locations)
    with pytest.raises(ModelError, match="missing"):
        choose_draft_model("missing", locations)
    assert load_config(locations.settings).draft_model == ""
    for chosen in (BUILT_IN, str(embedded_draft_model()), ""):
        choose_draft_model(chosen, locations)
        assert load_config(locations.settings).draft_model == chosen


def test_answers_are_the_same_while_they_are_recorded(locations: Locations) -> None:
    said = []
    for learn in ("true", "false"):
        locations.settings.write_text(f"learn = {learn}\n")
        # Without drafts: their number depends on times, and near-ties on their number.
        options = Options(drafters=("draft-model",), draft_tokens=0, seed=7, max_tokens=60)
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


def test_a_new_draft_model_is_made_for_the_chosen_model(copy: Path, locations: Locations) -> None:
    configured(locations, "new", model=copy)
    engine = load(Options(drafters=("prompt", "draft-model")), locations)
    (error,) = engine.errors
    assert "`specchat models use --draft-model new` makes one" in str(error)
    choose_draft_model("new", locations)
    assert load_config(locations.settings).draft_model == "new"
    path = draft_model_file("new", copy, locations)
    assert path is not None
    written = path.stat().st_mtime_ns
    engine = load(Options(drafters=("draft-model",)), locations)
    assert (names(engine), engine.errors) == (["draft-model"], [])
    assert engine.versioned_draft_model is not None
    assert engine.versioned_draft_model.versions.current == 0
    choose_draft_model("new", locations)  # what it learned is not thrown away
    assert path.stat().st_mtime_ns == written


def test_the_embedded_model_needs_no_new_draft_model(locations: Locations) -> None:
    with pytest.raises(InputError, match="has its own draft model"):
        choose_draft_model("new", locations)
    assert load_config(locations.settings).draft_model == ""
