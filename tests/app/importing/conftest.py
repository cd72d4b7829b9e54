"""A library to import into, and a folder to import from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.importing.events import ImportFinished, ImportReport
from app.importing.pipeline import import_paths
from datastores.errors import InputError
from datastores.library.library import Library

Importer = Callable[..., ImportReport]


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with closing(Library.open(tmp_path / "library.db")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    path = tmp_path / "folder"
    path.mkdir()
    return path


@pytest.fixture
def imported(library: Library) -> Importer:
    """Import paths and give the report; that nothing was imported is no error here."""

    def run(*paths: Path) -> ImportReport:
        report = ImportReport()
        with suppress(InputError):
            for event in import_paths(paths, library):
                if isinstance(event, ImportFinished):
                    report = event.report
        return report

    return run
