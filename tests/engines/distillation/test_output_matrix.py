"""Rows of the output matrix in safetensors folders; `test_head.py` covers GGUF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from datastores.errors import ModelError
from engines.distillation.output_matrix import OutputMatrix

MATRIX = torch.arange(40.0).reshape(10, 4)
OTHER = torch.zeros(10, 4)
EMBEDDINGS, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
TOKENS = np.array([7, 0, 7])


def write(folder: Path, *parts: dict[str, torch.Tensor]) -> Path:
    for number, tensors in enumerate(parts):
        save_file(tensors, folder / f"model-{number}.safetensors")
    return folder


@pytest.mark.parametrize(
    "parts",
    [
        ({EMBEDDINGS: MATRIX},),
        ({EMBEDDINGS: OTHER}, {OUTPUT: MATRIX}),
        ({OUTPUT: MATRIX.bfloat16(), EMBEDDINGS: OTHER}, {"model.norm.weight": torch.ones(4)}),
        ({f"language_model.{EMBEDDINGS}": MATRIX.half()},),
    ],
    ids=["tied", "in another shard", "bfloat16", "below another name"],
)
def test_rows_are_read_from_a_folder(
    tmp_path: Path, parts: tuple[dict[str, torch.Tensor], ...]
) -> None:
    matrix = OutputMatrix(write(tmp_path, *parts))
    rows = matrix.rows(TOKENS)
    assert (matrix.size, matrix.width, str(rows.dtype)) == (10, 4, "float32")
    np.testing.assert_array_equal(rows, MATRIX.numpy()[TOKENS])


def test_a_folder_without_an_output_matrix_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"model.norm.weight": torch.ones(4)})
    with pytest.raises(ModelError, match="it has no output matrix"):
        OutputMatrix(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 60])
def test_a_damaged_folder_is_refused(tmp_path: Path, kept: int) -> None:
    write(tmp_path, {OUTPUT: MATRIX})
    path = tmp_path / "model-0.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelError, match="cannot be read"):
        OutputMatrix(tmp_path)
