"""A machine of its own for every test: no model of this one is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.locations import VARIABLE, Elsewhere, Locations, elsewhere, locate


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, with no variable that leads out of it."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", VARIABLE, "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setattr("app.locations.OLLAMA_SERVICE", tmp_path / "service")
    return directory


@pytest.fixture
def others() -> Elsewhere:
    """Where other programs' models are in that home."""
    return elsewhere()


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    """specchat's own places."""
    return locate(tmp_path / "specchat")
