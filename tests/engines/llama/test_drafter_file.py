"""EAGLE-3 and DFlash drafters are found beside their model and checked before they run.

That their drafts change no answer is tested with the other prediction heads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.llama import drafter_file
from engines.llama.context import Weights
from engines.llama.drafter_file import KINDS
from engines.llama.gguf import DFLASH, EAGLE, heads_file
from engines.llama.model import load
from engines.llama.target import LlamaTarget
from tests.engines.tiny import WIDTH, TinyVocabulary, write_llama, write_relative
from tests.engines.tiny_heads import (
    write_dflash_drafter,
    write_eagle_drafter,
    write_four_blocks,
)

WORDS = TinyVocabulary()
OTHER_WORDS = TinyVocabulary(pieces=["and"])
LAYERS = {EAGLE: (0, 2, 3), DFLASH: (1, 3)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose drafter is written by the test."""
    return write_four_blocks(tmp_path / "llama.gguf", WORDS)


@pytest.fixture(params=KINDS)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def write(
    model: Path,
    architecture: str,
    vocabulary: TinyVocabulary = WORDS,
    *,
    name: str = "",
    drafted: tuple[int, ...] = (),
    layers: tuple[int, ...] | None = None,
    reads: int = WIDTH,
) -> Path:
    """A drafter of the kind beside the model."""
    writers: dict[str, Callable[..., Path]] = {
        EAGLE: write_eagle_drafter,
        DFLASH: write_dflash_drafter,
    }
    path = model.with_name(f"{name or architecture}.gguf")
    layers = LAYERS[architecture] if layers is None else layers
    return writers[architecture](path, vocabulary, drafted=drafted, layers=layers, reads=reads)


def open_target(path: Path) -> LlamaTarget:
    return load(path, threads=1, context_length=256, heads=True).target


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("llama-EAGLE3-F16", EAGLE),
        ("eagle3-llama", EAGLE),
        ("Llama_eagle-3", EAGLE),
        ("llama-DFlash-bf16", DFLASH),
        ("dspark_llama_block7", DFLASH),
    ],
)
def test_a_drafter_is_found_by_its_name(model: Path, name: str, architecture: str) -> None:
    found = write(model, architecture, name=name)
    write(model, architecture, name=f"other-{architecture}")
    write_llama(model.with_name("llama-eagle30.gguf"), WORDS)
    assert heads_file(model, "llama") == found
    target = open_target(model)
    assert target.heads is not None
    assert not target.heads_problem


def test_only_the_draft_vocabulary_is_drafted(model: Path, architecture: str) -> None:
    drafted = (9, 7, 80)
    write(model, architecture, drafted=drafted)
    target = open_target(model)
    assert target.heads is not None
    list(target.prefill([5, 6, 7, 8]))
    assert target.heads.begin([5, 6, 7, 8, 9]) > 0
    for row in target.heads.next_rows([5, 6, 7, 8, 9], 4):
        assert np.flatnonzero(np.isfinite(row)).tolist() == sorted(drafted)
    assert target.heads.draft_vocabulary is not None
    assert tuple(target.heads.draft_vocabulary) == drafted


def test_one_token_has_no_state_for_eagle_to_draft_from(model: Path) -> None:
    write(model, EAGLE)
    target = open_target(model)
    assert target.heads is not None
    assert target.heads.begin([5]) == 0


def _refusal(model: Path) -> str:
    target = open_target(model)
    assert target.heads is None
    return target.heads_problem


def test_a_drafter_of_a_model_of_another_width_is_refused(model: Path, architecture: str) -> None:
    write(model, architecture, reads=2 * WIDTH)
    another = f"{architecture}.gguf drafts for another model"
    assert _refusal(model) == f"{another}, of width 128 and not 64"


@pytest.mark.parametrize("layers", [(0, 1, 4), (0, 1, -1)])
def test_a_drafter_that_reads_layers_that_the_model_lacks_is_refused(
    model: Path, architecture: str, layers: tuple[int, ...]
) -> None:
    write(model, architecture, layers=layers)
    assert f"reads layers {list(layers)} of a model with 4" in _refusal(model)


@pytest.mark.parametrize("layers", [(0, 1), (0, 1, 2, 3)])
def test_a_wrong_number_of_layers_is_refused(model: Path, layers: tuple[int, ...]) -> None:
    """By llama.cpp."""
    write(model, EAGLE, layers=layers)
    assert "exactly 3" in _refusal(model)


def test_a_drafter_with_another_vocabulary_is_refused(model: Path, architecture: str) -> None:
    write(model, architecture, OTHER_WORDS)
    another = f"{architecture}.gguf drafts for another model"
    assert _refusal(model) == f"{another}, of 260 tokens and not 259"


@pytest.mark.parametrize("drafted", [(5, 259), (5, -1), (5, 5)])
def test_a_damaged_draft_vocabulary_is_refused(
    model: Path, architecture: str, drafted: tuple[int, ...]
) -> None:
    """llama.cpp would abort the process."""
    write(model, architecture, drafted=drafted)
    assert _refusal(model) == f"{architecture}.gguf is damaged: its draft vocabulary is none"


@pytest.mark.parametrize(("block", "mask"), [(1, 0), (6, -1), (6, 259)])
def test_a_drafter_without_a_block_is_refused(model: Path, block: int, mask: int) -> None:
    write_dflash_drafter(model.with_name("dflash.gguf"), WORDS, block=block, mask=mask)
    assert _refusal(model) == "dflash.gguf is damaged: it has no block of mask tokens"


def test_a_drafter_with_a_damaged_tensor_is_refused(model: Path) -> None:
    """By llama.cpp."""
    path = write_dflash_drafter(model.with_name("dflash.gguf"), WORDS)
    path.write_bytes(path.read_bytes().replace(b"fc.weight", b"fd.weight"))
    assert "fc.weight" in _refusal(model)


def test_a_model_whose_states_llama_cpp_does_not_give_runs_without(
    tmp_path: Path, architecture: str
) -> None:
    model = write_relative(tmp_path / "model.gguf", WORDS, "qwen2", blocks=4)
    write(model, architecture)
    assert _refusal(model) == f"this llama.cpp runs no {KINDS[architecture]} drafters for qwen2"


def test_an_older_library_runs_none(
    model: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(model, architecture)
    monkeypatch.setattr(drafter_file, "HAS_LAYER_INPUTS", False)
    assert _refusal(model) == f"this llama.cpp runs no {KINDS[architecture]} drafters for llama"


def test_a_drafter_is_no_model(model: Path, architecture: str) -> None:
    path = write(model, architecture)
    with pytest.raises(ModelError, match=f"that model's folder, with {architecture} in its name"):
        Weights(path)
