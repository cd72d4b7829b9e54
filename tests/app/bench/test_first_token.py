"""The benchmark of the first token asks while training is stopped, whichever way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
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
from tests.waiting import until

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
    with closing(Training(engine, tmp_path / "draft-model.gguf", locations)) as made:
        yield made


def trains(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return CHILD in process.cmdline() and process.status() != psutil.STATUS_STOPPED
    return False


def until_nothing_trains() -> None:
    """Fails if a process goes on training; one that was told to stop may take its time."""
    until(lambda: not any(map(trains, psutil.Process().children(recursive=True))))


def test_every_question_is_asked_both_ways_while_the_process_is_stopped(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(engine: object, question: str, sampling: Sampling) -> None:
        until_nothing_trains()
        asked.append(question)

    monkeypatch.setattr(first_token, "_ask", ask)
    engine = cast(Engine, None)
    (first, second) = first_tokens(engine, ["one", "two"], Sampling(), training)
    assert asked == ["one", "one", "two", "two"]
    assert min(first.resting, first.training, second.resting, second.training) > 0
    assert 0 < second.pause <= second.training


def test_a_training_that_fails_is_said(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_token, "START_TIMEOUT_S", 0.2)
    training.close()
    with pytest.raises(ModelError, match="no training is running: it ended"):
        training.work()
