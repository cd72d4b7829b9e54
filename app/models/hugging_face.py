"""The cache of Hugging Face's libraries: `models--ORG--REPO/snapshots/COMMIT/FILE`.

The files of a snapshot are links to blobs named by their checksums. They are opened by the link,
since the parts of a model find one another by their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.models.files import Candidate, Skipped, gguf_files, listing
from app.models.files import candidates as bundled

PLACE = "Hugging Face"
_PREFIX, _SEPARATOR = "models--", "--"
_COMMIT = 40
"""Characters of a commit's name."""


def candidates(cache: Path) -> Iterator[Candidate | Skipped]:
    """The models in `cache`, as `ORG/REPO:QUANTISATION`."""
    repositories = listing(cache)
    if isinstance(repositories, Skipped):
        yield repositories
        return
    for folder in repositories:
        if folder.name.startswith(_PREFIX):
            yield from _repository(folder)


def _repository(folder: Path) -> Iterator[Candidate | Skipped]:
    """The newest snapshot's models; an older one's where the newest has no file of that name."""
    snapshots = listing(folder / "snapshots")
    if isinstance(snapshots, Skipped):
        yield snapshots
        return
    newest = _head(folder)
    name = folder.name.removeprefix(_PREFIX).replace(_SEPARATOR, "/", 1)
    seen: set[str] = set()
    for snapshot in sorted(snapshots, key=lambda path: path.name != newest):
        files = []
        for found in gguf_files(snapshot):
            if isinstance(found, Skipped):
                yield found
            elif (relative := str(found.relative_to(snapshot))) not in seen:
                seen.add(relative)
                files.append(found)
        yield from bundled(snapshot, files, PLACE, name)


def _head(folder: Path) -> str:
    """The commit that `main` stood at when it was last fetched; empty where none is noted."""
    try:
        with (folder / "refs" / "main").open("rb") as file:
            return file.read(_COMMIT).decode("ascii", "replace")
    except OSError:
        return ""
