"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A deadline for each example would be a timing assertion, and fail on a busy machine.
settings.register_profile("specchat", deadline=None)
settings.load_profile("specchat")


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense index fits its projection to few states, so that short texts are enough."""
    monkeypatch.setattr("datastores.dense.index.SAMPLE", 256)
