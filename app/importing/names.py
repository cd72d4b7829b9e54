"""Imports by the names that the person gave them, or by their paths.

Settings store the paths of imports, which identify them; people read and type names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from app.chat_settings import DOCS_MODES, parse_docs
from app.importing.find_files import expanded, storable_name
from app.locations import Locations
from app.sanitise import one_line
from datastores.errors import InputError
from datastores.library.library import Library

MAX_TYPED = 80
"""Most characters of what was typed in an error."""


def import_names(locations: Locations) -> dict[str, str]:
    """The path of every import → its name.

    Raises:
        StoreError: the library cannot be read.
    """
    with closing(Library.open(locations.library)) as library:
        return library.names()


def path_of(typed: str, names: Mapping[str, str], others: Sequence[str] = ()) -> str:
    """The path of an import: by its name, its path as listed, or another path to the same place.

    Args:
        names: path → name of every import.
        others: what can be typed instead, for the error.

    Raises:
        InputError: there is no such import.
    """
    wanted = typed.casefold()
    by_name = [path for path, name in names.items() if name.casefold() == wanted]
    file = expanded(Path(typed))
    paths = (typed, storable_name(os.path.abspath(file)), storable_name(os.path.realpath(file)))
    for path in (*by_name, *paths):
        if path in names:
            return path
    known = ", ".join(one_line(one, MAX_TYPED) for one in (*others, *names.values()))
    way_out = f"choose from {known}" if known else "nothing is imported"
    raise InputError(f"no import '{one_line(typed, MAX_TYPED)}': {way_out}")


def stored_docs(typed: str, names: Mapping[str, str]) -> str:
    """The `DocsSetting` that was typed, as it is stored.

    Raises:
        InputError: it is malformed, or there is no such import.
    """
    docs = parse_docs(typed)
    return str(
        replace(docs, imports=tuple(path_of(one, names, DOCS_MODES) for one in docs.imports))
    )


def shown_docs(stored: str, names: Mapping[str, str]) -> str:
    """A stored `DocsSetting` with names; an import that was removed keeps its path."""
    docs = parse_docs(stored)
    return str(replace(docs, imports=tuple(names.get(path, path) for path in docs.imports)))
