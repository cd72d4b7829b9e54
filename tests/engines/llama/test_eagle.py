"""EAGLE-3 drafters are found beside their model and checked before they run.

That their drafts change no answer is tested with the other prediction heads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.llama import eagle
from engines.llama.context import Weights
from engines.llama.gguf import heads_file
from engines.llama.model import load
from engines.llama.target import LlamaTarget
from tests.engines.tiny import WIDTH, TinyVocabulary, write_llama, write_relative
from tests.engines.tiny_heads import write_eagle, write_eagle_drafter

WORDS = TinyVocabulary()
OTHER_WORDS = TinyVocabulary(pieces=["and"])


def open_target(path: Path) -> LlamaTarget:
    return load(path, threads=1, context_length=256, heads=True).target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose drafter is written by the test."""
    path = write_eagle(tmp_path, WORDS)
    (tmp_path / "llama-eagle3.gguf").unlink()
    return path


@pytest.mark.parametrize("name", ["llama-EAGLE3-F16", "eagle3-llama", "Llama_eagle-3"])
def test_a_drafter_is_found_by_its_name(model: Path, name: str) -> None:
    found = write_eagle_drafter(model.with_name(f"{name}.gguf"), WORDS)
    write_eagle_drafter(model.with_name("other-eagle3.gguf"), WORDS)
    write_llama(model.with_name("llama-eagle30.gguf"), WORDS)
    assert heads_file(model, "llama") == found
    target = open_target(model)
    assert target.heads is not None
    assert not target.heads_problem


def test_only_the_draft_vocabulary_is_drafted(model: Path) -> None:
    drafted = [9, 7, 80]
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS, drafted=drafted)
    target = open_target(model)
    assert target.heads is not None
    list(target.prefill([5, 6, 7, 8]))
    assert target.heads.begin([5, 6, 7, 8, 9]) == 4
    row = target.heads.next_row([5, 6, 7, 8, 9])
    assert np.flatnonzero(np.isfinite(row)).tolist() == sorted(drafted)
    assert target.heads.draft_vocabulary is not None
    assert target.heads.draft_vocabulary.tolist() == drafted


def test_one_token_has_no_state_to_draft_from(model: Path) -> None:
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS)
    target = open_target(model)
    assert target.heads is not None
    assert target.heads.begin([5]) == 0


def _refusal(model: Path) -> str:
    target = open_target(model)
    assert target.heads is None
    return target.heads_problem


def test_a_drafter_of_a_model_of_another_width_is_refused(model: Path) -> None:
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS, reads=2 * WIDTH)
    assert _refusal(model) == ("eagle3.gguf drafts for another model, of width 128 and not 64")


@pytest.mark.parametrize("layers", [(0, 1, 4), (0, 1, -1), (0, 1), (0, 1, 2, 3)])
def test_a_drafter_that_reads_layers_that_the_model_lacks_is_refused(
    model: Path, layers: tuple[int, ...]
) -> None:
    """A wrong number of layers is llama.cpp's to refuse."""
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS, layers=layers)
    problem = _refusal(model)
    assert "exactly 3" in problem or "of a model with 4" in problem


def test_a_drafter_with_another_vocabulary_is_refused(model: Path) -> None:
    write_eagle_drafter(model.with_name("eagle3.gguf"), OTHER_WORDS)
    assert _refusal(model) == ("eagle3.gguf drafts for another model, of 260 tokens and not 259")


@pytest.mark.parametrize("drafted", [(5, 259), (5, -1), (5, 5)])
def test_a_damaged_draft_vocabulary_is_refused(model: Path, drafted: tuple[int, ...]) -> None:
    """llama.cpp would abort the process."""
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS, drafted=drafted)
    assert _refusal(model) == "eagle3.gguf is damaged: its draft vocabulary is none"


def test_a_model_whose_states_llama_cpp_does_not_give_runs_without(tmp_path: Path) -> None:
    model = write_relative(tmp_path / "model.gguf", WORDS, "qwen2", blocks=4)
    write_eagle_drafter(tmp_path / "eagle3.gguf", WORDS)
    assert _refusal(model) == "this llama.cpp runs no EAGLE-3 drafters for qwen2"


def test_an_older_library_runs_none(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS)
    monkeypatch.setattr(eagle, "HAS_LAYER_INPUTS", False)
    assert _refusal(model) == "this llama.cpp runs no EAGLE-3 drafters for llama"


def test_a_drafter_is_no_model(model: Path) -> None:
    path = write_eagle_drafter(model.with_name("eagle3.gguf"), WORDS)
    with pytest.raises(ModelError, match="put it into that model's folder"):
        Weights(path)
