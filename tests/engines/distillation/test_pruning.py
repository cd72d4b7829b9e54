"""A draft model pruned out of a target is that target where nothing is lost, and runs where much
is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from datastores.errors import ModelError
from engines.distillation import untrained
from engines.distillation.family import GEMMA, LLAMA, Family
from engines.distillation.model import LlamaShape
from engines.distillation.pruning import ODD_GEMMA, PrunedTarget, kept_layers, prune
from engines.distillation.trainer import FROM_NOTHING, PRUNED
from engines.distillation.untrained import training_settings, write_untrained
from engines.distillation.weights import LlamaFile, read_llama_file
from engines.drafters.draft_model import require_same_vocabulary
from engines.llama.enlarge import Enlargement, enlarge
from engines.llama.vocabulary import load_vocabulary
from tests.app.models.gguf_files import split_gguf
from tests.engines.distillation.test_weights import (
    ROUNDED,
    llama_cpp_logits,
    torch_logits,
    write_grouped,
)
from tests.engines.tiny import (
    FORWARD,
    HEAD_SIZE,
    HEADS,
    WIDTH,
    TinyVocabulary,
    write_llama,
    write_mixture,
    write_relative,
)

RELATIVES = ["qwen2", "qwen3", "gemma3"]
GEMMA_BLOCKS = 7
"""The sixth attends to the whole text."""
Q8_ROUNDED = 0.12
"""Share of the logits' spread that rounding weights and activations to 8 bits costs at tiny
widths."""
IDS = torch.arange(10, 40).unsqueeze(0)


def prune_nothing(*target: Path) -> LlamaFile:
    """To the width that all tiny models have."""
    return prune(PrunedTarget(*target), GEMMA_BLOCKS, WIDTH)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft models may be as narrow and as shallow as the tiny targets call for."""
    for name, value in {
        "MAX_COST": 0.2,
        "MIN_LAYERS": 2,
        "MIN_WIDTH": 32,
        "WIDTH_STEP": 32,
    }.items():
        monkeypatch.setattr(untrained, name, value)


def shape_of(layers: int, family: Family) -> LlamaShape:
    """Sizes of a target as large as people run."""
    return LlamaShape(
        layers=layers,
        width=576,
        hidden=1536,
        vocabulary=49152,
        heads=9,
        kv_heads=3,
        head_size=64,
        context=8192,
        family=family,
    )


@torch.no_grad()
def assert_alike(pruned: LlamaFile, target: LlamaFile) -> None:
    """Both give the same logits, but for rounding."""
    logits = [model.logits(model(IDS)) for model in (pruned.model(), target.model())]
    torch.testing.assert_close(*logits, rtol=0.0, atol=1e-4)


def test_a_target_of_which_nothing_is_pruned_is_the_same(tmp_path: Path) -> None:
    tied = write_llama(tmp_path / "tied.gguf", TinyVocabulary())
    for target in (tied, write_grouped(tmp_path / "grouped.gguf")):
        pruned = prune_nothing(target)
        assert_alike(pruned, read_llama_file(target))


@pytest.mark.parametrize("architecture", RELATIVES)
def test_a_relative_of_which_nothing_is_pruned_is_the_same(
    tmp_path: Path, architecture: str
) -> None:
    target = write_relative(tmp_path / "t.gguf", TinyVocabulary(), architecture, GEMMA_BLOCKS)
    assert_alike(prune_nothing(target), read_llama_file(target))
    # The pruned file is written by llama.cpp's rules, and the target's own runs there.
    assert abs(llama_cpp_logits(target) - torch_logits(target)).max() < ROUNDED


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("architecture", RELATIVES)
def test_what_is_pruned_out_of_a_relative_runs_in_torch_and_in_llama_cpp(
    tmp_path: Path, architecture: str
) -> None:
    target, path = tmp_path / "target.gguf", tmp_path / "new.gguf"
    write_relative(target, TinyVocabulary(), architecture)
    write_untrained(path, 1, target)
    shape = read_llama_file(path).shape
    assert (shape.layers, shape.width, shape.tied) == (2, 32, False)
    assert shape.family.name == ("llama" if architecture == "qwen2" else architecture)
    ours, theirs = torch_logits(path), llama_cpp_logits(path)
    assert (ours - theirs).std() < Q8_ROUNDED * theirs.std()
    assert training_settings(path) == PRUNED


@torch.no_grad()
def test_few_of_a_gemmas_directions_say_most_of_what_all_say(tmp_path: Path) -> None:
    """Norms behind the halves of a layer forbid to rotate them; what is left is close."""
    target = write_relative(tmp_path / "target.gguf", TinyVocabulary(), "gemma3")
    whole, nearly = (prune(PrunedTarget(target), 2, width).model() for width in (WIDTH, WIDTH - 1))
    ours, theirs = nearly.logits(nearly(IDS)).flatten(), whole.logits(whole(IDS)).flatten()
    assert torch.corrcoef(torch.stack((ours, theirs)))[0, 1] > 0.97


def test_the_gemma_that_scales_attention_by_its_width_keeps_its_scale(tmp_path: Path) -> None:
    target = write_relative(tmp_path / "t.gguf", TinyVocabulary(), "gemma3", ODD_GEMMA)
    before = read_llama_file(target).weights["layers.0.q_norm"]
    after = prune(PrunedTarget(target), 2, WIDTH).weights["layers.0.q_norm"]
    # √head_size against √(width / heads)
    torch.testing.assert_close(after, before * (HEAD_SIZE / (WIDTH / HEADS)) ** 0.5)


def test_what_holds_nothing_is_pruned_first(tmp_path: Path) -> None:
    target, wide = write_grouped(tmp_path / "target.gguf"), tmp_path / "wide.gguf"
    enlarge(target, Enlargement(wider=2, deeper=1), wide)
    pruned = prune_nothing(wide)
    assert pruned.shape.width == WIDTH
    assert_alike(pruned, read_llama_file(target))


@pytest.mark.usefixtures("cheap")
def test_a_pruned_file_runs_in_llama_cpp(tmp_path: Path) -> None:
    target, path = write_grouped(tmp_path / "target.gguf"), tmp_path / "new.gguf"
    write_untrained(path, 1, target)
    shape = read_llama_file(path).shape
    assert (shape.width, shape.hidden, shape.layers) == (32, FORWARD, 2)
    assert training_settings(path) == PRUNED
    ours, theirs = torch_logits(path), llama_cpp_logits(path)
    assert (ours - theirs).std() < Q8_ROUNDED * theirs.std()
    require_same_vocabulary(load_vocabulary(path), load_vocabulary(target))


def test_layers_are_kept_at_equal_distances_from_the_first_on() -> None:
    shape = shape_of(layers=30, family=LLAMA)
    found = [kept_layers(replace(shape, layers=layers), 4) for layers in (1, 4, 8, 30)]
    assert found == [[0], [0, 1, 2, 3], [0, 2, 4, 6], [0, 7, 15, 22]]


def test_of_a_gemma_local_layers_are_kept_in_local_places() -> None:
    shape = shape_of(layers=18, family=GEMMA)
    assert kept_layers(shape, 18) == list(range(18))
    kept = kept_layers(shape, 8)
    assert len(kept) == 5
    assert all(shape.family.is_local(layer) for layer in kept)


def test_a_target_in_several_files_is_read_from_all(tmp_path: Path) -> None:
    target = write_grouped(tmp_path / "target.gguf")
    pruned = prune_nothing(*split_gguf(target, tmp_path / "parts.gguf", 8))
    assert_alike(pruned, read_llama_file(target))


def test_a_target_with_experts_gives_random_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, path = write_mixture(tmp_path / "target.gguf", TinyVocabulary()), tmp_path / "new.gguf"
    with pytest.raises(ModelError, match="it has a tensor"):
        prune_nothing(target)
    monkeypatch.setattr(untrained, "MAX_COST", 10.0)
    write_untrained(path, 1, target)
    assert read_llama_file(path).shape.width == untrained.MIN_WIDTH
    assert training_settings(path) == FROM_NOTHING
