"""What holds for every test."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A deadline for each example would be a timing assertion, and fail on a busy machine.
settings.register_profile("specchat", deadline=None)
settings.load_profile("specchat")


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dense index fits its projection to few states, so that short texts are enough."""
    monkeypatch.setattr("datastores.dense.index.SAMPLE", 256)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers for `-n auto`: none for chosen tests, which then start at once and can be debugged;
    for the whole suite one more than there are cores, since many tests wait for a screen or a
    process."""
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return (os.cpu_count() or 1) + 1 if whole and not config.option.keyword else 0
