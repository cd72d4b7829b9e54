"""The benchmark of the first token asks while training is stopped, whichever way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from app.bench import first_token
from app.bench.first_token import Training, first_tokens
from app.engine.engine import Engine
from app.locations import Locations
from datastores.errors import ModelError
from engines.sampler import Sampling
from tests.waiting import TIMEOUT_S

CHILD = "tests.app.runtime.learning_child"


@pytest.fixture
def training(
    tmp_path: Path, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Training]:
    """One that never ends and learns nothing."""
    monkeypatch.setattr(first_token, "PROCESS", CHILD)
    monkeypatch.setattr(first_token, "BEFORE_S", 0.0)
    monkeypatch.setattr("app.runtime.learning.on_battery", lambda: False)
    monkeypatch.setattr("app.runtime.learning.POLL_S", 0.01)
    target = SimpleNamespace(fingerprint="endless")
    engine = cast(Engine, SimpleNamespace(target=target, path=tmp_path / "steps"))
    with closing(Training(engine, tmp_path / "student.gguf", locations)) as made:
        yield made


def still_works() -> bool:
    """Whether a process that trains goes on; one that was told to stop may take its time."""
    deadline = time.monotonic() + TIMEOUT_S
    children = psutil.Process().children(recursive=True)
    trainers = [child for child in children if CHILD in child.cmdline()]
    while any(child.status() != psutil.STATUS_STOPPED for child in trainers):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.001)
    return False


def test_every_question_is_asked_both_ways_while_the_process_is_stopped(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool]] = []

    def ask(engine: object, question: str, sampling: Sampling) -> None:
        asked.append((question, still_works()))

    monkeypatch.setattr(first_token, "_ask", ask)
    engine = cast(Engine, None)
    (first, second) = first_tokens(engine, ["one", "two"], Sampling(), training)
    assert asked == [("one", False), ("one", False), ("two", False), ("two", False)]
    assert min(first.resting, first.training, second.resting, second.training) > 0
    assert 0 < second.pause <= second.training


def test_a_training_that_fails_is_said(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_token, "START_TIMEOUT_S", 0.2)
    training.close()
    with pytest.raises(ModelError, match="no training is running: it ended"):
        training.work()
