"""A model arrives whole, once, and under its own name, whatever happens on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import huggingface_hub
import pytest
from filelock import FileLock
from huggingface_hub import constants

from app.locations import Locations, ModelFolders
from app.models import download
from app.models.discovery import find_models
from app.models.download import CHUNK_BYTES, DownloadFinished, DownloadProgress, download_model
from app.models.hub import look_up
from datastores.errors import InputError, ModelError
from tests.app.models.hub import (
    COMMIT,
    CONTENT,
    DIGEST,
    FORTY_PERCENT,
    REPOSITORY,
    WANTED,
    Hub,
    partial_of,
)
from tests.waiting import TIMEOUT_S, until


def _pull(cache: Path, wanted: str = WANTED) -> tuple[Path, list[DownloadProgress]]:
    *steps, end = download_model(look_up(wanted), cache)
    assert isinstance(end, DownloadFinished)
    return end.path, [step for step in steps if isinstance(step, DownloadProgress)]


def test_a_model_arrives_where_every_program_finds_it(
    hub: Hub, others: ModelFolders, locations: Locations
) -> None:
    path, steps = _pull(others.hugging_face)
    assert path.read_bytes() == CONTENT
    assert [step.done for step in steps] == [CHUNK_BYTES * number for number in range(1, 6)]
    assert {step.total for step in steps} == {len(CONTENT)}
    assert [found.name for found in find_models(locations).candidates] == ["built-in", WANTED]
    asked = len(hub.requests)
    for revision in ("main", COMMIT):
        there = huggingface_hub.try_to_load_from_cache(
            REPOSITORY, path.name, others.hugging_face, revision=revision
        )
        assert there == str(path)
    assert len(hub.requests) == asked
    assert not list(others.hugging_face.rglob("*.incomplete"))


def test_a_complete_file_is_not_downloaded_again(hub: Hub, others: ModelFolders) -> None:
    path, _ = _pull(others.hugging_face)
    assert len(hub.fetches()) == 1
    again, steps = _pull(others.hugging_face)
    assert (again, steps) == (path, [DownloadProgress(len(CONTENT), len(CONTENT))])
    assert len(hub.fetches()) == 1


def test_all_parts_arrive_and_count_together(hub: Hub, others: ModelFolders) -> None:
    path, steps = _pull(others.hugging_face, f"{REPOSITORY}:q8_0")
    assert (path.name, path.read_bytes()) == ("model-Q8_0-00001-of-00002.gguf", b"first")
    assert path.with_name("model-Q8_0-00002-of-00002.gguf").read_bytes() == b"second"
    assert steps == [DownloadProgress(5, 11), DownloadProgress(11, 11)]


def test_a_broken_connection_resumes_where_it_broke(hub: Hub, others: ModelFolders) -> None:
    hub.breaks = [FORTY_PERCENT, FORTY_PERCENT, FORTY_PERCENT + CHUNK_BYTES]
    path, _ = _pull(others.hugging_face)
    assert path.read_bytes() == CONTENT
    starts = [0, FORTY_PERCENT, FORTY_PERCENT, FORTY_PERCENT + CHUNK_BYTES]
    assert hub.fetches() == [f"bytes={start}-" for start in starts]


def test_one_that_stays_broken_is_reported_and_resumed_later(
    hub: Hub, others: ModelFolders
) -> None:
    hub.breaks = [FORTY_PERCENT] * (1 + download.MAX_FAILED_ATTEMPTS)
    with pytest.raises(ModelError, match=r"was lost after 0\.00 of 0\.01 GB .*download it again"):
        _pull(others.hugging_face)
    assert partial_of(others.hugging_face).read_bytes() == CONTENT[:FORTY_PERCENT]
    assert _pull(others.hugging_face)[0].read_bytes() == CONTENT


def test_a_hub_without_ranges_is_read_from_the_start(hub: Hub, others: ModelFolders) -> None:
    hub.ranges, hub.breaks = False, [FORTY_PERCENT]
    path, steps = _pull(others.hugging_face)
    assert path.read_bytes() == CONTENT
    assert [step.done // CHUNK_BYTES for step in steps] == [1, 2, 1, 2, 3, 4, 5]


def test_a_damaged_file_is_not_kept(hub: Hub, others: ModelFolders) -> None:
    hub.spoil = True
    with pytest.raises(ModelError, match=r"model-Q4_K_M\.gguf has the wrong checksum"):
        _pull(others.hugging_face)
    assert not list(partial_of(others.hugging_face).parent.iterdir())
    hub.spoil = False
    assert _pull(others.hugging_face)[0].read_bytes() == CONTENT


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("size", [FORTY_PERCENT, len(CONTENT) + 1])
def test_a_wrong_beginning_is_found_out(others: ModelFolders, size: int) -> None:
    begun = partial_of(others.hugging_face)
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"x" * size)
    with pytest.raises(ModelError, match="has the wrong checksum"):
        _pull(others.hugging_face)
    assert _pull(others.hugging_face)[0].read_bytes() == CONTENT


def test_another_download_of_it_is_not_disturbed(hub: Hub, others: ModelFolders) -> None:
    locks = others.hugging_face / ".locks" / f"models--{REPOSITORY.replace('/', '--')}"
    locks.mkdir(parents=True)
    with (
        FileLock(locks / f"{DIGEST}.lock"),
        pytest.raises(ModelError, match="another process is downloading"),
    ):
        _pull(others.hugging_face)
    assert not hub.fetches()


def test_a_full_disk_is_reported_before(
    hub: Hub, others: ModelFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1000))
    with pytest.raises(ModelError, match=r"needs 0\.0 GB more; 0\.0 GB are free"):
        _pull(others.hugging_face)
    assert not hub.fetches()


@pytest.mark.usefixtures("hub")
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelError, match=r"cannot write to .*cache: .*HF_HUB_CACHE"):
        _pull(tmp_path / "cache")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("wanted", "tag"),
    [
        (REPOSITORY, "Q4_K_M"),
        (f"hf.co/{WANTED}", "Q4_K_M"),
        (f"https://huggingface.co/{REPOSITORY}", "Q4_K_M"),
        (f"{REPOSITORY}:model-Q8_0-00001-of-00002.gguf", "Q8_0"),
        (f"{REPOSITORY}:model-q4_k_m", "Q4_K_M"),
        ("org/single", "F16"),
    ],
)
def test_a_model_is_meant_by_many_names(wanted: str, tag: str) -> None:
    assert look_up(wanted).tag == tag


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        (f"{REPOSITORY}:Q2_K", r"has no Q2_K: choose from Q4_K_M \(0\.0 GB\), Q8_0 \(0\.0 GB\)"),
        ("org/single:Q8_0", r"has no Q8_0: choose from F16"),
        ("org/weights", "holds no GGUF model: look for"),
        ("org/nothing", r"has no repository org/nothing, or it is private: .*hf auth login"),
    ],
)
def test_a_missing_model_is_reported_with_those_that_exist(wanted: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        look_up(wanted)


def test_two_of_a_kind_are_distinguished(hub: Hub) -> None:
    hub.files = {"org/twins/a-Q4_K_M.gguf": b"a", "org/twins/b-Q4_K_M.gguf": b"b"}
    with pytest.raises(ModelError, match=r"more than one Q4_K_M: choose from a-Q4_K_M .*b-Q4_K_M"):
        look_up("org/twins")
    assert look_up("org/twins:b-Q4_K_M").tag == "b-Q4_K_M"


def test_a_file_without_a_checksum_is_not_offered(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.app.models.hub._lfs", lambda _: None)
    with pytest.raises(ModelError, match="holds no GGUF model"):
        look_up(REPOSITORY)


@pytest.mark.parametrize("wanted", ["", "model", "a/b/c", "../x", "org/repo:", "org/re po", "-/x"])
def test_what_names_no_model_is_refused_here(wanted: str) -> None:
    with pytest.raises(InputError, match="is not a model name: use ORG/REPO or ORG/REPO:Q4_K_M"):
        look_up(wanted)


@pytest.mark.parametrize(
    ("status", "code", "complaint"),
    [
        (403, "GatedRepo", "requires accepting its terms: do so at"),
        (401, "RepoNotFound", "has no repository org/locked, or it is private"),
        (503, "", r"refuses org/locked \(503\): try again later"),
        (200, "", "does not answer like the Hugging Face hub: check HF_ENDPOINT"),
    ],
)
def test_refusals_are_worded(hub: Hub, status: int, code: str, complaint: str) -> None:
    hub.statuses = {"org/locked": (status, code)}
    with pytest.raises(ModelError, match=complaint):
        look_up("org/locked")


def test_a_missing_connection_is_reported(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"cannot reach http://127\.0\.0\.1:9 .*`specchat models`"):
        look_up(REPOSITORY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="offline mode is on: unset HF_HUB_OFFLINE"):
        look_up(REPOSITORY)


def _command(hub: Hub, home: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "SPECCHAT_DATA_DIR": str(home / "data"),
    }
    command = [sys.executable, "-m", "app", "models", "pull", WANTED]
    pipe = subprocess.PIPE
    # A shell starts background jobs deaf to Ctrl-C, and with them these tests: let it hear.
    hearing = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, env=environment, text=True, preexec_fn=hearing
    )


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_pull_that_was_stopped_at_40_percent_resumes(
    hub: Hub, others: ModelFolders, home: Path, blow: signal.Signals
) -> None:
    hub.stall_at = FORTY_PERCENT
    stopped = _command(hub, home)
    assert hub.stalled.wait(TIMEOUT_S)
    begun = partial_of(others.hugging_face)
    until(lambda: stopped.poll() is not None or begun.stat().st_size >= FORTY_PERCENT)
    stopped.send_signal(blow)
    _, said = stopped.communicate(timeout=TIMEOUT_S)
    if blow is signal.SIGINT:
        assert stopped.returncode == 130
        assert "interrupted; run the same command to resume" in said
        assert "Traceback" not in said
    assert begun.read_bytes() == CONTENT[:FORTY_PERCENT]

    hub.stall_at = None
    hub.go_on.set()
    second = _command(hub, home)
    printed, said = second.communicate(timeout=TIMEOUT_S)
    assert (second.returncode, hub.fetches()) == (0, ["bytes=0-", f"bytes={FORTY_PERCENT}-"]), said
    path = Path(printed.split(" is at ")[1].strip())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGEST
    assert f"specchat models use {WANTED}" in said
    assert not begun.exists()
