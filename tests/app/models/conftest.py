"""A machine of its own for every test: no model of this one is seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from app.locations import (
    DATA_DIR_VARIABLE,
    Locations,
    ModelFolders,
    locate,
    model_folders,
)
from app.models import download
from tests.app.models.hub import FILES, Hub


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, with no variable that leads out of it."""
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", DATA_DIR_VARIABLE, "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setattr("app.locations.OLLAMA_SERVICE", tmp_path / "service")
    return directory


@pytest.fixture
def others() -> ModelFolders:
    """Where other programs' models are in that home."""
    return model_folders()


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    """specchat's own places."""
    return locate(tmp_path / "specchat")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with a few repositories, which huggingface_hub takes for the real one."""
    served = Hub(dict(FILES))
    server = served.start()
    monkeypatch.setattr(constants, "ENDPOINT", served.url)
    template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    for name, value in (("HF_ENDPOINT", served.url), ("HF_HUB_DISABLE_XET", "1")):
        monkeypatch.setenv(name, value)  # for processes
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "RETRY_DELAY_S", 0)
    huggingface_hub.close_session()
    yield served
    huggingface_hub.close_session()
    served.go_on.set()
    server.shutdown()
    server.server_close()
