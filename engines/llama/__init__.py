"""The default engine: GGUF models through llama.cpp's low-level API.

Importing this package loads nothing of llama.cpp; `load` does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.llama.model import LlamaModel

# Threads that wait at a barrier spin before they sleep: by default for milliseconds, which on a
# machine with anything else to do starves the very thread they wait for. On four cores with eight
# other busy processes a forward pass of 0.3 ms took 150 to 1200 ms by default, 9 to 26 ms with
# this, and on an idle machine nothing is lost. OpenMP reads it once, as llama.cpp is loaded: so
# it stands here, where every import of this package passes first.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")


def load(
    path: Path,
    *,
    gpu_layers: int | None = None,
    threads: int = 0,
    context_length: int = 8192,
    exact: bool = False,
    known: Path | None = None,
    rows: int = 0,
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
        rows=rows,
    )
