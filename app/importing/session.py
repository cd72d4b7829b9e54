"""Imports into the user's own library: runs one, records it, lists what was imported.

A small JSON file next to the library records when each import was made, and whether completely. It
is separate because the rows of the library depend on the texts alone, so that a resumed import
gives the same rows as an uninterrupted one. If the file is lost, only this record is.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time

from filelock import FileLock

from app.importing.events import Event, ImportFinished
from app.importing.find_files import expanded, import_path_of
from app.importing.pipeline import import_paths
from app.locations import Locations
from datastores.errors import StoreError
from datastores.library.documents import Import
from datastores.library.library import Library
from datastores.storage.files import write_atomic
from datastores.storage.integrity import quarantine, quarantined_files


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """What is recorded of an import.

    Attributes:
        at: when it began or was completed, in seconds since 1970.
        whole: whether it was completed.
        watched: whether the folder's changes are imported automatically.
    """

    at: float
    whole: bool
    watched: bool = False


ImportRecords = dict[str, ImportRecord]


def read_imports(path: Path) -> ImportRecords:
    """The record of every import; empty if the file is missing.

    A damaged file is moved aside, where `app.damage` finds it; the next import writes a new one.
    """
    try:
        found = json.loads(path.read_bytes())
        return {
            import_path: ImportRecord(
                float(record["at"]), bool(record["whole"]), bool(record.get("watched", False))
            )
            for import_path, record in found.items()
        }
    except OSError:
        return {}  # opening the library reports unreadable folders with a better message
    except (ValueError, TypeError, KeyError, AttributeError):
        with suppress(OSError):  # a read-only folder
            quarantine(path)
        return {}


def record_imports(path: Path, roots: Iterable[str], *, whole: bool) -> None:
    """Record that an import of `roots` begins, or with `whole` that it is complete.

    Raises:
        StoreError: the file cannot be written.
    """
    now = time()

    def record(imports: ImportRecords) -> None:
        for import_path in roots:
            watched = import_path in imports and imports[import_path].watched
            imports[import_path] = ImportRecord(now, whole, watched)

    _update(path, record)


def watch(path: Path, import_path: str, watched: bool) -> None:
    """Start or stop watching the import from `import_path`.

    Raises:
        StoreError: the file cannot be written.
    """

    def change(imports: ImportRecords) -> None:
        record = imports.get(import_path, ImportRecord(time(), whole=True))
        imports[import_path] = replace(record, watched=watched)

    _update(path, change)


def watched_imports(path: Path) -> list[str]:
    """The paths of watched imports, sorted."""
    return sorted(
        import_path for import_path, record in read_imports(path).items() if record.watched
    )


def drop_import(path: Path, import_path: str) -> None:
    """Remove the record of `import_path`, and damaged files that may contain it.

    Raises:
        StoreError: the file cannot be written.
    """
    if path.exists():
        _update(path, lambda imports: imports.pop(import_path, None))
    for damaged in quarantined_files(path):
        damaged.unlink()


def _update(path: Path, change: Callable[[ImportRecords], object]) -> None:
    """Apply `change` and replace the file, one process at a time."""
    try:
        with FileLock(f"{path}.lock"):
            imports = read_imports(path)
            change(imports)
            text = json.dumps(
                {import_path: asdict(record) for import_path, record in imports.items()}
            )
            write_atomic(path, [text])
    except OSError as error:
        lock = f"{path}.lock"
        place = lock if os.path.isdir(lock) else path  # a folder in place of the lock file
        message = f"cannot write {place}: {error.strerror}; check its permissions"
        raise StoreError(message) from error


def import_into(
    library: Library, locations: Locations, paths: Sequence[Path], only: Set[str] | None = None
) -> Generator[Event]:
    """Like `import_paths`, into the library of `locations`, with the imports recorded."""
    own = (locations.data, locations.cache, locations.config)
    roots = [import_path_of(path) for path in paths if os.path.exists(expanded(path))]
    record_imports(locations.imported, roots, whole=False)
    for event in import_paths(paths, library, own, only):
        if isinstance(event, ImportFinished):
            _record_end(library, locations, roots)
        yield event


def _record_end(library: Library, locations: Locations, roots: Sequence[str]) -> None:
    stored = [import_path for import_path in roots if library.contains(import_path)]
    record_imports(locations.imported, stored, whole=True)
    for import_path in set(roots).difference(stored):
        drop_import(locations.imported, import_path)


CHARACTERS_PER_TOKEN = 4
"""A rough average for texts that are not tokenized yet."""


@dataclass(frozen=True, slots=True)
class ListedImport:
    """A stored import and its record.

    Attributes:
        tokens: number of tokens of its distinct texts; estimated from their length unless
            `counted`.
        record: None if the file has none.
    """

    stored: Import
    tokens: int
    counted: bool
    record: ImportRecord | None

    @property
    def whole(self) -> bool:
        """Whether it was completed, as far as is known."""
        return self.stored.whole and (self.record is None or self.record.whole)

    @property
    def watched(self) -> bool:
        """Whether the folder's changes are imported automatically."""
        return self.record is not None and self.record.watched


def list_imports(locations: Locations, token_counts: Mapping[bytes, int]) -> list[ListedImport]:
    """All imports in the order of their paths.

    Args:
        token_counts: by key, for the texts that are tokenized.

    Raises:
        StoreError: the library cannot be opened.
    """
    records = read_imports(locations.imported)
    texts: defaultdict[str, list[bytes]] = defaultdict(list)
    with closing(Library.open(locations.library)) as library:
        imports = library.imports()
        for path, digest in library.import_texts():
            texts[path].append(digest)
    return [
        _listed(stored, texts[stored.path], token_counts, records.get(stored.path))
        for stored in imports
    ]


def _listed(
    stored: Import,
    texts: Sequence[bytes],
    token_counts: Mapping[bytes, int],
    record: ImportRecord | None,
) -> ListedImport:
    counted = all(text in token_counts for text in texts)
    exact = sum(token_counts.get(text, 0) for text in texts)
    tokens = exact if counted else stored.characters // CHARACTERS_PER_TOKEN
    return ListedImport(stored, tokens, counted, record)
