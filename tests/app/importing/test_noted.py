"""When sources were imported: noted beside the library, and forgotten with them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.importing.events import Progress
from app.importing.noted import drop_note, note_imports, read_notes
from app.importing.session import import_into
from app.locations import Locations, locate
from datastores.errors import InputError
from datastores.library import Library


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    found = locate(tmp_path / "data")
    found.create()
    return found


def test_an_import_is_noted_as_begun_and_then_as_whole(places: Locations, folder: Path) -> None:
    (folder / "a.md").write_text("a")
    (folder / "b.md").write_text("b")
    with closing(Library.open(places.library)) as library:
        events = import_into(library, places, [folder])
        assert isinstance(next(events), Progress)
        begun = read_notes(places.imported)[str(folder)]
        events.close()
        assert not begun.whole
        list(import_into(library, places, [folder]))
    done = read_notes(places.imported)[str(folder)]
    assert done.whole
    assert done.at >= begun.at


def test_what_was_not_imported_is_not_noted(places: Locations, folder: Path) -> None:
    (folder / "none.md").touch()
    with closing(Library.open(places.library)) as library, pytest.raises(InputError):
        list(import_into(library, places, [folder, folder / "nowhere"]))
    assert read_notes(places.imported) == {}


def test_a_note_is_dropped_alone_and_its_path_with_it(places: Locations) -> None:
    drop_note(places.imported, "/a")
    assert not places.imported.exists()
    note_imports(places.imported, ["/a", "/b"], whole=True)
    drop_note(places.imported, "/a")
    assert list(read_notes(places.imported)) == ["/b"]
    assert all(b"/a" not in file.read_bytes() for file in places.data.iterdir() if file.is_file())


@pytest.mark.parametrize("content", ["", "[]", "{", '{"/a": 1}', '{"/a": {"at": "x", "whole": 1}}'])
def test_a_damaged_file_costs_only_the_dates(places: Locations, content: str) -> None:
    places.imported.write_text(content)
    assert read_notes(places.imported) == {}
    note_imports(places.imported, ["/b"], whole=True)
    assert list(read_notes(places.imported)) == ["/b"]
