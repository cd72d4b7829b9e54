"""A small sample for the projection, so that short answers are enough to fit it."""

from __future__ import annotations

import pytest

from tests.datastores.dense.test_worker import SAMPLE


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastores.dense.index.SAMPLE", SAMPLE)
