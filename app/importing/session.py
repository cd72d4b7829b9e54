"""An import into the person's own library, noted with its time.

What the command and the interface's process share. Refuses to know how events are shown.

When each source was imported, and whether to its end.

Owns one small JSON file beside the library. It is not in the library because rows there follow from
texts alone, so that an import which was killed and resumed equals one that was not; a time does
not. Without the file nothing is lost but the dates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time

from filelock import FileLock

from app.importing.events import Event, ImportFinished
from app.importing.find_files import source_of
from app.importing.pipeline import import_paths
from app.locations import Locations
from datastores.errors import StoreError
from datastores.library.library import Library
from datastores.storage.files import write_atomic


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """The last import of a source: when it began or ended (seconds since 1970), and which."""

    at: float
    whole: bool


ImportRecords = dict[str, ImportRecord]


def read_imports(path: Path) -> ImportRecords:
    """Every source's note; none where the file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
        return {
            source: ImportRecord(float(note["at"]), bool(note["whole"]))
            for source, note in found.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # Only dates: they come again with the next imports.
        return {}


def record_imports(path: Path, sources: Iterable[str], *, whole: bool) -> None:
    """Note that an import of `sources` begins, or has come to its end.

    Raises:
        StoreError: the file cannot be written.
    """
    note = ImportRecord(time(), whole)
    _change(path, lambda notes: notes.update(dict.fromkeys(sources, note)))


def drop_import(path: Path, source: str) -> None:
    """Forget that `source` was ever imported; no file keeps its path.

    Raises:
        StoreError: the file cannot be written.
    """
    if path.exists():
        _change(path, lambda notes: notes.pop(source, None))


def _change(path: Path, change: Callable[[ImportRecords], object]) -> None:
    """Read, change and replace the file, one process at a time."""
    try:
        with FileLock(f"{path}.lock"):
            notes = read_imports(path)
            change(notes)
            text = json.dumps({source: asdict(note) for source, note in notes.items()})
            write_atomic(path, [text])
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; check its permissions") from error


def import_into(library: Library, locations: Locations, paths: Sequence[Path]) -> Generator[Event]:
    """As `import_paths`, into `library`, which is that of `locations`."""
    own = (locations.data, locations.cache, locations.config)
    sources = [source_of(path) for path in paths if path.expanduser().exists()]
    record_imports(locations.imported, sources, whole=False)
    for event in import_paths(paths, library, own):
        if isinstance(event, ImportFinished):
            _note_the_end(library, locations, sources)
        yield event


def _note_the_end(library: Library, locations: Locations, sources: Sequence[str]) -> None:
    held = [source for source in sources if library.contains(source)]
    record_imports(locations.imported, held, whole=True)
    for source in set(sources).difference(held):
        drop_import(locations.imported, source)
