"""The embedded model, loaded once for all engine tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.llama.model import LlamaModel, load

EMBEDDED = Path(__file__).parents[2] / "assets" / "target-f16.gguf"
THREADS = 2


@pytest.fixture(scope="session")
def model() -> LlamaModel:
    """The embedded model on the CPU."""
    return load(EMBEDDED, threads=THREADS, gpu_layers=0, context_length=1024)
