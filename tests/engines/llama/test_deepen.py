"""The deepened model computes more and writes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datastores.errors import ModelError
from engines.draft_tree import chain
from engines.llama.gguf import deepen
from engines.llama.model import LlamaModel, load
from tests.engines.conftest import EMBEDDED, THREADS

PROMPT = [1, *range(300, 330)]


def test_deepened_model_gives_the_very_same_logits(model: LlamaModel, tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep.gguf"
    deepen(EMBEDDED, 3, path)
    deep = load(path, threads=THREADS, gpu_layers=0, context_length=1024)
    assert deep.layers == model.layers + 3
    rows = []
    for target in (model.target, deep.target):
        target.rewind(0)
        list(target.prefill(PROMPT))
        rows.append(target.verify(chain(5, [6, 7], 1)).logits.copy())
    assert np.array_equal(rows[0], rows[1])
    assert deep.target.fingerprint != model.target.fingerprint
    assert deep.vocabulary.fingerprint == model.vocabulary.fingerprint
    assert [entry.name for entry in path.parent.iterdir()] == ["deep.gguf"]


def test_what_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "notes.gguf"
    source.write_bytes(b"GGUF but not really" * 10)
    with pytest.raises(ModelError, match=r"notes\.gguf cannot be deepened"):
        deepen(source, 1, tmp_path / "deep.gguf")
    assert list(tmp_path.iterdir()) == [source]
