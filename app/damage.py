"""Reports files that were found damaged, and how to recover their contents.

Whichever process opens a damaged database moves it aside, or deletes it if it can be rebuilt, and
that process may be a background one without output. So the report is derived from the folder: a
file that was moved aside is reported for as long as it exists, a rebuilt cache once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.locations import Locations
from datastores.errors import StoreError
from datastores.storage.integrity import REBUILT, quarantined_files

MAX_IMPORTS = 5
"""Maximum number of paths in the suggested import command."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged file.

    Attributes:
        path: the file that was moved aside, or the note about a rebuilt cache.
        text: what happened and what to do about it.
        kept: whether the contents still exist at `path`.
    """

    path: Path
    text: str
    kept: bool


def found_damage(locations: Locations) -> list[Damage]:
    """All damage that is not settled; takes a fraction of a millisecond."""
    texts = [
        *((path, _chats(path)) for path in quarantined_files(locations.history)),
        *((path, _imports(path, locations)) for path in quarantined_files(locations.library)),
        *((path, _records(path)) for path in quarantined_files(locations.imported)),
    ]
    return [*(Damage(path, text, kept=True) for path, text in texts), *_rebuilt(locations)]


def settle(damage: Damage) -> None:
    """Mark `damage` as reported: the note about a rebuilt cache is deleted.

    Raises:
        StoreError: the note cannot be deleted.
    """
    if damage.kept:
        return
    try:
        damage.path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot delete {damage.path}: {error.strerror}") from error


def _chats(aside: Path) -> str:
    return (
        f"your chats were damaged and set aside as {aside}:"
        f" `specchat restore {shlex.quote(str(aside))}` brings back what can be read of them;"
        " delete the file when you no longer need it"
    )


def _imports(aside: Path, locations: Locations) -> str:
    # Imported here: without damage, importing is not needed.
    from app.importing.session import read_imports

    moved = aside.stat().st_ctime if aside.exists() else 0.0
    records = read_imports(locations.imported)
    missing = [import_path for import_path, record in sorted(records.items()) if record.at < moved]
    if records and not missing:
        how = "you have imported the same files again since"
    elif 0 < len(missing) <= MAX_IMPORTS:
        how = f"`specchat import {shlex.join(missing)}` imports the same files again"
    else:
        how = "import your files again with `specchat import PATH…`"
    return (
        f"your imports were damaged and set aside as {aside}, and answers come without them: {how};"
        " delete the file when you no longer need it"
    )


def _records(aside: Path) -> str:
    return (
        f"the list of your imports was damaged and set aside as {aside}: your imports are still"
        " used, but folders are watched only once you import them again; delete the file when you"
        " no longer need it"
    )


def _rebuilt(locations: Locations) -> Iterator[Damage]:
    for folder in (locations.projections, locations.states):
        for note in sorted(folder.rglob(f"*{REBUILT}")):
            path = note.with_suffix("")
            text = f"{path} was damaged and is rebuilt from your chats and imports"
            yield Damage(note, text, kept=False)
