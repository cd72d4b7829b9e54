"""Fixtures: a data directory with an empty library and history."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.locations import Locations, locate
from datastores.chats.history import History
from datastores.library.library import Library
from tests.waiting import TIMEOUT_S


@pytest.fixture(autouse=True)
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file here crashes llama.cpp: loading it in a process of its own first takes a second.

    `tests/engines/llama` tests that.
    """
    monkeypatch.setattr("engines.llama.probe._probe", lambda *_, **__: None)


@pytest.fixture
def indexed_at_normal_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep other programs from starving the processes that index."""
    monkeypatch.setattr("app.indexing.indexer.WORKER", "tests.app.indexing.indexer_child")
    embedder = "app.indexing.embedding_process.EMBEDDER"
    monkeypatch.setattr(embedder, "tests.app.indexing.embedding_child")


@pytest.fixture
def unhurried_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let closing a model wait as long as its thread needs on a busy machine."""
    monkeypatch.setattr("app.runtime.model_thread.CLOSE_TIMEOUT_S", TIMEOUT_S)


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    found = locate(tmp_path / "data")
    found.create()
    return found


@pytest.fixture
def library(locations: Locations) -> Iterator[Library]:
    with closing(Library.open(locations.library)) as opened:
        yield opened


@pytest.fixture(scope="session")
def empty_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history without chats, created once, since that takes as long as a short test."""
    path = tmp_path_factory.mktemp("empty") / "history.db"
    History.open(path).close()
    return path


@pytest.fixture
def history(locations: Locations, empty_history: Path) -> Iterator[History]:
    shutil.copy(empty_history, locations.history)
    with closing(History.open(locations.history)) as opened:
        yield opened
