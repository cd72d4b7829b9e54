"""Rows of a target's output matrix, from its file or folder.

The draft head's output begins with them. Only the rows asked for are read: the matrix of a large
vocabulary takes a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from datastores.errors import ModelError
from engines.distillation.weights import open_gguf
from engines.target import Floats

GGUF_NAMES = ("output.weight", "token_embd.weight")
FOLDER_NAMES = ("lm_head.weight", "embed_out.weight", "embed_tokens.weight", "wte.weight")
"""Ends of the matrix's name; models that tie it to the embeddings have only these."""

ReadRows = Callable[[NDArray[np.int64]], Floats]


class OutputMatrix:
    """The output matrix of a target.

    Attributes:
        size: number of tokens.
        width: length of a row.
    """

    def __init__(self, path: Path, *parts: Path) -> None:
        """Open all files of a GGUF model, or the folder of safetensors at `path`.

        Raises:
            ModelError: one cannot be read, or none has such a matrix.
        """
        source = _in_folder(path) if path.is_dir() else _in_gguf(path, *parts)
        self.size, self.width, self._read = source

    def rows(self, tokens: NDArray[np.int64]) -> Floats:
        """The rows of `tokens`, float32 [n, width].

        Raises:
            ModelError: weights of this type cannot be read, or the file is damaged.
        """
        return self._read(tokens)


def _in_gguf(path: Path, *parts: Path) -> tuple[int, int, ReadRows]:
    from gguf.quants import dequantize

    tensors = {tensor.name: tensor for part in (path, *parts) for tensor in open_gguf(part).tensors}
    tensor = next((tensors[name] for name in GGUF_NAMES if name in tensors), None)
    if tensor is None:
        raise ModelError(f"{path} cannot be read as a GGUF file: it has no output matrix")

    def read(tokens: NDArray[np.int64]) -> Floats:
        kind = tensor.tensor_type
        try:
            return np.array(dequantize(tensor.data[tokens], kind), np.float32)
        except NotImplementedError as error:
            message = f"no draft head can be made for {path}: it is of type {kind.name}"
            raise ModelError(message) from error

    width, size = map(int, tensor.shape)
    return size, width, read


def _in_folder(folder: Path) -> tuple[int, int, ReadRows]:
    try:
        path, name = _find(folder)
        with safe_open(path, "pt") as file:
            size, width = file.get_slice(name).get_shape()
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error

    def read(tokens: NDArray[np.int64]) -> Floats:
        try:
            with safe_open(path, "pt") as file:
                matrix = file.get_slice(name)
                rows = torch.cat([matrix[token : token + 1] for token in tokens.tolist()])
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{folder} cannot be read: {error}") from error
        read_rows: Floats = rows.float().numpy()
        return read_rows

    return size, width, read


def _find(folder: Path) -> tuple[Path, str]:
    """The file in `folder` that has the matrix, and its name there."""
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = file.keys()
        files |= dict.fromkeys(names, path)
    found = [name for end in FOLDER_NAMES for name in files if name.endswith(end)]
    if not found:
        raise ModelError(f"no draft head can be made for {folder}: it has no output matrix")
    return files[found[0]], found[0]
