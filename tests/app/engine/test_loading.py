"""What the user chose reaches the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.config import Options
from app.engine.engine import PassageForm
from app.engine.loading import EMBEDDED_PASSAGE_FORM, enlarged_copy, load
from app.locations import locate
from app.models.discovery import BUILT_IN, embedded
from engines.llama.enlarge import Enlargement
from tests.engines.tiny_recurrent import write_recurrent


@pytest.mark.parametrize(
    ("configured", "given", "seeded", "seed"),
    [
        ("", None, False, 0),
        ("seed = -1", None, False, 0),
        ("seed = 0", None, True, 0),
        ("seed = 7", None, True, 7),
        ("seed = 7", 9, True, 9),
        ("seed = -1", 0, True, 0),
    ],
)
def test_a_seed_counts_wherever_it_was_set(
    tmp_path: Path, configured: str, given: int | None, seeded: bool, seed: int
) -> None:
    locations = locate(tmp_path)
    locations.settings.write_text(f"[sampling]\n{configured}\n")
    engine = load(Options(seed=given, drafters=()), locations)
    assert (engine.defaults.seeded, engine.defaults.sampling.seed) == (seeded, seed)


def test_the_embedded_model_is_called_as_in_the_list_of_models(tmp_path: Path) -> None:
    engine = load(Options(drafters=()), locate(tmp_path))
    assert engine.name == BUILT_IN
    engine.close()


def test_the_embedded_model_alone_gets_passages_in_the_form_of_its_training(tmp_path: Path) -> None:
    locations, larger = locate(tmp_path), Enlargement(deeper=1)
    built_in = load(Options(drafters=()), locations)
    assert built_in.passage_form == EMBEDDED_PASSAGE_FORM
    assert built_in.answerability is None
    enlarged = load(Options(drafters=()), locations, larger=larger)
    assert enlarged.passage_form == EMBEDDED_PASSAGE_FORM, "the same weights"
    copy = shutil.copy(embedded(), tmp_path / "other.gguf")
    other = load(Options(model=str(copy), drafters=()), locations)
    assert other.passage_form == PassageForm(instructed=True)
    assert other.answerability is not None
    assert other.answerability.path.parent == locations.answerability
    assert other.answerability.classifier is None, "not learned yet"


def test_a_recurrent_model_checks_no_passages(tmp_path: Path) -> None:
    """Its layers cannot be read, so nothing is ever learned of them, and nothing reported."""
    path = write_recurrent(tmp_path, "mamba2")
    engine = load(Options(model=str(path), drafters=()), locate(tmp_path))
    assert engine.passage_form.instructed
    assert engine.answerability is None
    assert not any("unchecked" in str(error) for error in engine.errors)
    engine.close()


def test_an_enlarged_copy_is_made_once_for_each_size(tmp_path: Path) -> None:
    cache, deeper = tmp_path / "cache", Enlargement(deeper=1)
    first = enlarged_copy(embedded(), deeper, cache)
    made = first.stat().st_ino
    assert enlarged_copy(embedded(), deeper, cache) == first
    assert first.stat().st_ino == made
    assert enlarged_copy(embedded(), Enlargement(2), cache) != first
    assert len(list(cache.iterdir())) == 2
