"""An import into the person's own library, noted with its time.

What the command and the interface's process share. Refuses to know how events are shown.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

from app.importing.events import Event, Finished
from app.importing.noted import drop_note, note_imports
from app.importing.run import import_paths
from app.importing.walk import source_of
from app.locations import Locations
from datastores.library import Library


def import_into(library: Library, locations: Locations, paths: Sequence[Path]) -> Generator[Event]:
    """As `import_paths`, into `library`, which is that of `locations`."""
    own = (locations.data, locations.cache, locations.config)
    sources = [source_of(path) for path in paths if path.expanduser().exists()]
    note_imports(locations.imported, sources, whole=False)
    for event in import_paths(paths, library, own):
        if isinstance(event, Finished):
            _note_the_end(library, locations, sources)
        yield event


def _note_the_end(library: Library, locations: Locations, sources: Sequence[str]) -> None:
    held = [source for source in sources if library.holds(source)]
    note_imports(locations.imported, held, whole=True)
    for source in set(sources).difference(held):
        drop_note(locations.imported, source)
