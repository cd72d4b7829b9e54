"""An import in a process of its own tells the same as one in this."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from app.importing.beside import ImportBeside
from app.importing.child import SET_ASIDE
from app.importing.events import Event, Finished, Progress, Skipped
from app.importing.run import import_paths
from app.locations import Locations, locate
from datastores.errors import InputError, StoreError
from datastores.library import Library
from tests.datastores.dump import rows_of


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return locate(tmp_path / "data")


def _events(beside: ImportBeside) -> list[Event]:
    return [event for batch in beside.batches() for event in batch]


def _told(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, Skipped | Finished)]


def test_it_tells_the_same_and_stores_the_same(
    places: Locations, folder: Path, library: Library
) -> None:
    for number in range(30):
        (folder / f"{number}.md").write_text(f"page {number}")
    (folder / "evil\x1b[2J.bin").write_bytes(b"\0")
    here = list(import_paths([folder], library))
    beside = _events(ImportBeside([folder], places))
    assert _told(beside) == _told(here)
    assert any(isinstance(event, Progress) and event.total_files == 31 for event in beside)
    assert rows_of(places.library) == rows_of(library.store.path)


def test_nothing_imported_is_the_same_error(places: Locations, folder: Path) -> None:
    (folder / "x").write_bytes(b"\0")
    batches = ImportBeside([folder], places).batches()
    events = next(batches) + next(batches)
    assert [event.reason for event in events if isinstance(event, Skipped)] == ["binary"]
    with pytest.raises(InputError, match=r"nothing was imported: binary \(1\)"):
        list(batches)


def test_stopped_it_ends_without_a_word_and_goes_on_to_the_same_end(
    places: Locations, folder: Path, library: Library
) -> None:
    for number in range(3000):
        (folder / f"{number}.md").write_text(f"page {number}")
    beside = ImportBeside([folder], places)
    batches = beside.batches()
    next(batches)
    beside.stop()
    rest = [event for batch in batches for event in batch]
    assert not any(isinstance(event, Finished) for event in rest)
    _events(ImportBeside([folder], places))
    list(import_paths([folder], library))
    assert rows_of(places.library) == rows_of(library.store.path)


def test_a_process_that_dies_of_itself_is_a_failure(places: Locations, folder: Path) -> None:
    (folder / "a.md").write_text("a")
    beside = ImportBeside([folder], places)
    os.kill(beside._process.pid, signal.SIGKILL)
    with pytest.raises(StoreError, match="the same path goes on from there"):
        _events(beside)


def test_a_damaged_library_is_told_of(places: Locations, folder: Path) -> None:
    (folder / "a.md").write_text("a")
    places.create()
    places.library.write_bytes(b"no database" * 1000)
    first = _events(ImportBeside([folder], places))[0]
    assert isinstance(first, Skipped)
    assert first.reason == SET_ASIDE
    with closing(Library.open(places.library)) as opened:
        assert opened.holds(str(folder))
