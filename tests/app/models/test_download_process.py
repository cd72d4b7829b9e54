"""A model is downloaded in a child process, stopped at once, and resumed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

import pytest

from app.locations import ModelFolders
from app.models.download import RATE_WINDOW_S, ModelDownload
from tests.app.models.hub import CONTENT, FORTY_PERCENT, REPOSITORY, WANTED, Hub, partial_of
from tests.waiting import TIMEOUT_S


async def whole(fetch: ModelDownload, others: ModelFolders) -> list[int]:
    """Fetch to the end; what was here at each step."""
    async with aclosing(fetch.run(others.hugging_face)) as steps:
        return [fetch.done async for _ in steps]


async def test_a_model_arrives(hub: Hub, others: ModelFolders) -> None:
    fetch = ModelDownload(REPOSITORY)
    assert (fetch.name, fetch.share) == (REPOSITORY, 0)
    seen = await whole(fetch, others)
    assert seen == sorted(seen)
    assert (fetch.name, fetch.done, fetch.total) == (WANTED, len(CONTENT), len(CONTENT))
    assert fetch.path is not None
    assert fetch.path.read_bytes() == CONTENT
    assert not fetch.running
    assert fetch.failure == ""


async def test_stopped_at_40_percent_it_stops_at_once_and_resumes_there(
    hub: Hub, others: ModelFolders
) -> None:
    hub.stall_at = FORTY_PERCENT
    fetch = ModelDownload(WANTED)
    task = asyncio.create_task(whole(fetch, others))
    assert await asyncio.to_thread(hub.stalled.wait, TIMEOUT_S)
    begun = partial_of(others.hugging_face)
    while begun.stat().st_size < FORTY_PERCENT:
        await asyncio.sleep(0.01)
    assert fetch.running
    task.cancel()  # the connection goes on waiting: no one here does
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not hub.go_on.is_set()
    assert not fetch.running
    assert begun.read_bytes() == CONTENT[:FORTY_PERCENT]

    hub.stall_at = None
    hub.go_on.set()
    await whole(fetch, others)
    assert hub.fetches() == ["bytes=0-", f"bytes={FORTY_PERCENT}-"]
    assert fetch.path is not None
    assert fetch.path.read_bytes() == CONTENT


async def test_a_damaged_file_is_reported_in_one_line_and_downloaded_anew(
    hub: Hub, others: ModelFolders
) -> None:
    hub.spoil = True
    fetch = ModelDownload(WANTED)
    await whole(fetch, others)
    assert fetch.failure == "model-Q4_K_M.gguf has the wrong checksum: download it again"
    assert (fetch.path, fetch.running) == (None, False)
    hub.spoil = False
    await whole(fetch, others)
    assert fetch.path is not None
    assert not fetch.failure


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("wanted", "reason"),
    [("org/nowhere", "has no repository org/nowhere"), ("nonsense", "is not a model name")],
)
async def test_what_the_hub_does_not_have_is_reported(
    others: ModelFolders, wanted: str, reason: str
) -> None:
    fetch = ModelDownload(wanted)
    await whole(fetch, others)
    assert reason in fetch.failure


async def test_a_process_that_ends_silently_is_reported(
    others: ModelFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    fetch = ModelDownload(WANTED)
    await whole(fetch, others)
    assert fetch.failure == f"download of {WANTED} failed (exit code 1); try again"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    fetch = ModelDownload(WANTED)
    fetch.update({"name": WANTED, "total": 10_000}, 0.0)
    assert (fetch.rate, fetch.seconds_left) == (0, None)
    fetch.update({"done": 1000}, 1.0)
    assert (fetch.rate, fetch.seconds_left) == (0, None)  # one report tells no rate
    fetch.update({"done": 2000}, 2.0)
    assert (fetch.rate, fetch.seconds_left, fetch.share) == (1000, 8, 0.2)
    fetch.update({"done": 2500}, 2.0 + RATE_WINDOW_S)
    assert fetch.rate == 500 / RATE_WINDOW_S
