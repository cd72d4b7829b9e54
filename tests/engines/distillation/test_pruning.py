"""A draft model pruned out of a target is that target where nothing is lost, and runs where much
is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from datastores.errors import ModelError
from engines.distillation import untrained
from engines.distillation.pruning import kept_layers, prune
from engines.distillation.trainer import FROM_NOTHING, PRUNED
from engines.distillation.untrained import training_settings, write_untrained
from engines.distillation.weights import StudentFile, read_student
from engines.drafters.student import require_same_vocabulary
from engines.llama.enlarge import Enlargement, enlarge
from engines.llama.vocabulary import load_vocabulary
from tests.app.models.gguf_files import split_gguf
from tests.engines.distillation.test_weights import (
    ROUNDED,
    llama_cpp_logits,
    torch_logits,
    write_grouped,
)
from tests.engines.tiny import FORWARD, WIDTH, TinyVocabulary, write_llama, write_mixture

IDS = torch.arange(10, 40).unsqueeze(0)


def prune_nothing(*target: Path) -> StudentFile:
    """To the width that `write_grouped` has, and its neurons."""
    return prune(*target, layers=3, width=WIDTH, hidden=FORWARD)


@torch.no_grad()
def assert_alike(pruned: StudentFile, target: StudentFile) -> None:
    """Both give the same logits, but for rounding."""
    logits = [model.logits(model(IDS)) for model in (pruned.model(), target.model())]
    torch.testing.assert_close(*logits, rtol=0.0, atol=1e-4)


def test_a_target_of_which_nothing_is_pruned_is_the_same(tmp_path: Path) -> None:
    tied = write_llama(tmp_path / "tied.gguf", TinyVocabulary())
    for target in (tied, write_grouped(tmp_path / "grouped.gguf")):
        pruned = prune_nothing(target)
        assert_alike(pruned, read_student(target))


def test_what_holds_nothing_is_pruned_first(tmp_path: Path) -> None:
    target, wide = write_grouped(tmp_path / "target.gguf"), tmp_path / "wide.gguf"
    enlarge(target, Enlargement(wider=2, deeper=1), wide)
    pruned = prune_nothing(wide)
    assert (pruned.shape.width, pruned.shape.hidden) == (WIDTH, FORWARD)
    assert_alike(pruned, read_student(target))


def test_a_pruned_file_runs_in_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, path = write_grouped(tmp_path / "target.gguf"), tmp_path / "new.gguf"
    monkeypatch.setattr(untrained, "WIDTH", WIDTH // 2)
    monkeypatch.setattr(untrained, "HIDDEN", FORWARD // 3)
    write_untrained(path, 1, target)
    shape = read_student(path).shape
    assert (shape.width, shape.hidden, shape.layers) == (WIDTH // 2, FORWARD // 3, 2)
    assert training_settings(path) == PRUNED
    assert abs(llama_cpp_logits(path) - torch_logits(path)).max() < ROUNDED
    require_same_vocabulary(load_vocabulary(path), load_vocabulary(target))


def test_layers_are_kept_at_equal_distances_from_the_first_on() -> None:
    found = [kept_layers(layers, 4) for layers in (1, 4, 8, 30)]
    assert found == [[0], [0, 1, 2, 3], [0, 2, 4, 6], [0, 7, 15, 22]]


def test_a_target_in_several_files_is_read_from_all(tmp_path: Path) -> None:
    target = write_grouped(tmp_path / "target.gguf")
    pruned = prune_nothing(*split_gguf(target, tmp_path / "parts.gguf", 8))
    assert_alike(pruned, read_student(target))


def test_a_target_that_is_no_plain_llama_gives_random_weights(tmp_path: Path) -> None:
    target, path = write_mixture(tmp_path / "target.gguf", TinyVocabulary()), tmp_path / "new.gguf"
    with pytest.raises(ModelError, match="it has a tensor"):
        prune_nothing(target)
    write_untrained(path, 1, target)
    assert read_student(path).shape.width == untrained.WIDTH
    assert training_settings(path) == FROM_NOTHING
