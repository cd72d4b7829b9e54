"""A student that knows nothing has the target's vocabulary, and runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datastores.errors import ModelError, StoreError
from engines.distillation.untrained import WIDTH, write_untrained
from engines.distillation.weights import read_student
from engines.draft_tree import chain
from engines.drafters.student import require_same_vocabulary
from engines.llama.model import load
from engines.llama.vocabulary import load_vocabulary
from tests.engines.tiny import CONTEXT, TinyVocabulary, write_gemma


def test_it_runs_with_the_vocabulary_of_a_target_of_any_architecture(tmp_path: Path) -> None:
    target = write_gemma(tmp_path / "target.gguf", TinyVocabulary(), 8)
    path = tmp_path / "students" / "new.gguf"
    write_untrained(path, 1, target)
    file, model = read_student(path), load(path, threads=1, gpu_layers=0, context_length=256)
    assert (file.shape.width, file.shape.context) == (WIDTH, CONTEXT)
    require_same_vocabulary(model.vocabulary, load_vocabulary(target))
    list(model.target.prefill([1, 5]))
    row = model.target.verify(chain(7, [], 1)).logits[0]
    with torch.no_grad():
        torch_model = file.model()
        wanted = torch_model.logits(torch_model(torch.tensor([[1, 5, 7]])))[0, -1].numpy()
    assert np.abs(row - wanted).max() < 0.03
    write_untrained(tmp_path / "again.gguf", 1, target)
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["new.gguf"]


def test_what_cannot_be_read_or_written_is_said_in_one_line(tmp_path: Path) -> None:
    target = write_gemma(tmp_path / "target.gguf", TinyVocabulary(), 8)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        write_untrained(tmp_path / "file" / "new.gguf", 1, target)
    with pytest.raises(ModelError, match="cannot be read as a GGUF file"):
        write_untrained(tmp_path / "new.gguf", 1, tmp_path / "file")
    assert not (tmp_path / "new.gguf").exists()
