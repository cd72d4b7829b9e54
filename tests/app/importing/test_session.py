"""When imports were imported: recorded next to the library, and removed with them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from app.damage import found_damage
from app.importing.events import ImportProgress
from app.importing.session import drop_import, import_into, read_imports, record_imports
from app.locations import Locations
from datastores.errors import InputError
from datastores.library.library import Library


def test_an_import_is_recorded_as_begun_and_then_as_complete(
    locations: Locations, folder: Path
) -> None:
    (folder / "a.md").write_text("a")
    (folder / "b.md").write_text("b")
    with closing(Library.open(locations.library)) as library:
        events = import_into(library, locations, [folder])
        assert isinstance(next(events), ImportProgress)
        begun = read_imports(locations.imported)[str(folder)]
        events.close()
        assert not begun.whole
        list(import_into(library, locations, [folder]))
    done = read_imports(locations.imported)[str(folder)]
    assert done.whole
    assert done.at >= begun.at


def test_what_was_not_imported_is_not_recorded(locations: Locations, folder: Path) -> None:
    (folder / "none.md").touch()
    with closing(Library.open(locations.library)) as library, pytest.raises(InputError):
        list(import_into(library, locations, [folder, folder / "nowhere"]))
    assert read_imports(locations.imported) == {}


def test_a_record_is_dropped_alone_and_its_path_with_it(locations: Locations) -> None:
    drop_import(locations.imported, "/a")
    assert not locations.imported.exists()
    record_imports(locations.imported, ["/a", "/b"], whole=True)
    drop_import(locations.imported, "/a")
    assert list(read_imports(locations.imported)) == ["/b"]
    assert all(
        b"/a" not in file.read_bytes() for file in locations.data.iterdir() if file.is_file()
    )


@pytest.mark.parametrize("content", ["", "[]", "{", '{"/a": 1}', '{"/a": {"at": "x", "whole": 1}}'])
def test_a_damaged_file_costs_only_the_dates(locations: Locations, content: str) -> None:
    locations.imported.write_text(content)
    assert read_imports(locations.imported) == {}
    (damage,) = found_damage(locations)
    assert "folders are watched only once you import them again" in damage.text
    record_imports(locations.imported, ["/b"], whole=True)
    assert list(read_imports(locations.imported)) == ["/b"]
    drop_import(locations.imported, "/a")
    assert found_damage(locations) == []
