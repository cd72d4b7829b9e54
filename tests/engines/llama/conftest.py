"""The embedded model in exact mode, loaded once for the tests of grammars."""

from __future__ import annotations

import pytest

from engines.llama.model import LlamaModel, load
from tests.engines.conftest import EMBEDDED, THREADS


@pytest.fixture(scope="session")
def exact() -> LlamaModel:
    """The embedded model without rounding differences: a grammar leaves it with tokens that are
    all improbable, and nearly the same."""
    return load(EMBEDDED, threads=THREADS, exact=True, context_length=512)
