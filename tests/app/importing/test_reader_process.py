"""Files that kill, stop or fill the process that reads them cost themselves and nothing else."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.importing.reader_process import MAX_DEATHS, ReaderProcess
from datastores.library.library import Library
from tests.app.importing.conftest import Importer
from tests.app.importing.texts import stored, zipped

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits time and memory")


@pytest.fixture(autouse=True)
def _deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.importing.reader_process.MODULE", "tests.app.importing.deadly_reader")


def test_what_a_reader_dies_of_costs_one_file(
    folder: Path, library: Library, imported: Importer
) -> None:
    for name in ("a.md", "b.dies", "c.md", "d.hangs", "e.fills", "f.raises", "g.md"):
        (folder / name).write_text(f"text of {name}")
    assert imported(folder).skipped == {
        "crashes its parser": ["b.dies"],
        "takes too long to read": ["d.hangs"],
        "needs too much memory to read": ["e.fills"],
        "damaged (KeyError)": ["f.raises"],
    }
    assert set(stored(library)) == {"a.md", "c.md", "g.md"}


def test_of_an_archive_it_costs_one_member(
    folder: Path, library: Library, imported: Importer
) -> None:
    names = ("a.md", "b.dies", "c.md", "d.hangs", "e.raises", "f.md")
    zipped(folder / "x.zip", dict.fromkeys(names, b"text"))
    assert imported(folder).skipped == {
        "crashes its parser": ["x.zip/b.dies"],
        "takes too long to read": ["x.zip/d.hangs"],
        "damaged (KeyError)": ["x.zip/e.raises"],
    }
    assert set(stored(library)) == {"x.zip/a.md", "x.zip/c.md", "x.zip/f.md"}


def test_an_archive_of_nothing_else_is_given_up(folder: Path, imported: Importer) -> None:
    zipped(folder / "x.zip", {f"{number}.dies": b"x" for number in range(MAX_DEATHS + 2)})
    (folder / "y.md").write_text("text")
    report = imported(folder)
    assert report.documents == 1
    assert report.skipped == {
        "crashes its parser": [
            *(f"x.zip/{number}.dies" for number in range(MAX_DEATHS - 1)),
            "x.zip",
        ]
    }


def test_it_ends_when_it_is_closed(folder: Path) -> None:
    from app.importing.find_files import FoundFile

    (folder / "a.md").write_text("text")
    with closing(ReaderProcess()) as reader:
        list(reader.read(FoundFile(str(folder), "a.md", folder / "a.md", 4)))
        child = reader._child
        assert child is not None
        assert child.is_running()
    assert not child.is_running()
