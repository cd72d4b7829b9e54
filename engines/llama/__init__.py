"""The default engine: GGUF models through llama.cpp's low-level API.

Importing this package loads nothing of llama.cpp; `load` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.llama.model import LlamaModel


def load(
    path: Path,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    context_length: int = 8192,
    exact: bool = False,
    known: Path | None = None,
) -> LlamaModel:
    """Load a GGUF file and make it ready; see `engines.llama.model.load`."""
    from engines.llama import model

    return model.load(
        path,
        gpu_layers=gpu_layers,
        threads=threads,
        context_length=context_length,
        exact=exact,
        known=known,
    )
