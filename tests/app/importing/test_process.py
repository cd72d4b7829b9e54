"""An import in a child process reports the same as one in this process."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from app.importing.events import Event, ImportFinished, ImportProgress, SkippedFile
from app.importing.pipeline import import_paths
from app.importing.process import import_in_child
from app.importing.session import read_imports
from app.locations import Locations, locate
from datastores.errors import InputError, StoreError
from datastores.library.library import Library
from engines.child_process import AsyncChildProcess
from tests.app.importing.halting_child import FILES
from tests.datastores.dump import rows_of

HALTING = "tests.app.importing.halting_child"


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    """Not there yet: the process makes them."""
    return locate(tmp_path / "data")


async def _events(folder: Path, locations: Locations) -> list[Event]:
    return [event async for batch in import_in_child([folder], locations) for event in batch]


def _results(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, SkippedFile | ImportFinished)]


def _pages(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number}.md").write_text(f"page {number}")


async def test_it_reports_and_stores_the_same(
    locations: Locations, folder: Path, library: Library
) -> None:
    _pages(folder, 30)
    (folder / "evil\x1b[2J.bin").write_bytes(b"\0")
    here = list(import_paths([folder], library))
    beside = await _events(folder, locations)
    assert _results(beside) == _results(here)
    assert any(isinstance(event, ImportProgress) and event.total_files == 31 for event in beside)
    assert rows_of(locations.library) == rows_of(library.store.path)


async def test_nothing_imported_is_the_same_error(locations: Locations, folder: Path) -> None:
    (folder / "x").write_bytes(b"\0")
    batches = import_in_child([folder], locations)
    events: list[Event] = []

    async def read() -> None:
        async for batch in batches:
            events.extend(batch)

    with pytest.raises(InputError, match=r"nothing imported: binary \(1\)"):
        await read()
    assert [event.reason for event in events if isinstance(event, SkippedFile)] == ["binary"]


def _stored(locations: Locations) -> int:
    with closing(Library.open(locations.library)) as opened:
        return sum(stored.documents for stored in opened.imports())


async def test_closed_it_ends_and_resumes_to_the_same_end(
    locations: Locations, folder: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pages(folder, 2 * FILES)
    with monkeypatch.context() as patched:
        patched.setattr(
            "app.importing.process.AsyncChildProcess",
            lambda _, *arguments: AsyncChildProcess(HALTING, *arguments),
        )
        async with aclosing(import_in_child([folder], locations)) as batches:
            await anext(batches)
            while _stored(locations) < FILES:
                await asyncio.sleep(0.01)
    assert not read_imports(locations.imported)[str(folder)].whole
    await _events(folder, locations)
    list(import_paths([folder], library))
    assert rows_of(locations.library) == rows_of(library.store.path)


async def test_a_process_that_dies_is_a_failure(
    locations: Locations, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.child_process.sys.executable", shutil.which("false"))
    with pytest.raises(StoreError, match="import the same path again to resume"):
        await _events(folder, locations)
