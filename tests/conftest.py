"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from app.locations import PACKAGED_MODELS_VARIABLE
from datastores.storage import sqlite
from tests.real_models import real_model

# Tests that choose no model mean the embedded one, whatever is installed.
os.environ[PACKAGED_MODELS_VARIABLE] = ""

# In the background of a script or under nohup these are ignored, which child processes inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

gc.disable()  # until everything is imported

# Where no bytecode is kept, every worker and every `specchat` that a test starts compiles the whole
# program again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The models are tiny: more threads would mostly wait for one another, and take the other workers'
# cores while they do. Tests of threads ask for them.
os.environ["OMP_NUM_THREADS"] = "1"

# A deadline for each example would be a timing assertion, and fail on a busy machine. Each run
# draws other examples.
settings.register_profile("specchat", deadline=None, max_examples=50)
settings.load_profile("specchat")


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector does not look at it again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[Callable[[sqlite3.Connection], None]]:
    """SQLite does not wait until a transaction is on the disk: no test cuts the power.

    Gives what configures a connection outside of tests.
    """
    configure = sqlite._configure

    def configure_only(connection: sqlite3.Connection) -> None:
        configure(connection)
        connection.execute("PRAGMA synchronous = OFF")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite, "_configure", configure_only)
        yield configure


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, quantised: a real general model."""
    return real_model("SmolLM2-135M-Instruct*")


@pytest.fixture(scope="session")
def base_model() -> Path:
    """Gemma 3 270M before it was trained to chat: it has no chat template."""
    return real_model("gemma-3-270m-base*")


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
