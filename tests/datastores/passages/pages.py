"""Three short pages, and a store with their passages."""

from __future__ import annotations

from pathlib import Path

from datastores.passages.chunks import split
from datastores.passages.store import PassageStore

TEXTS = {
    b"tar": "# tar\n\nArchiving utility.\n\n- Extract an archive:\n\n`tar xf archive.tar`",
    b"zip": "# zip\n\nPackage and compress files into a zip archive.",
    b"ls": "# ls\n\nList the contents of a directory.",
}


def open_pages(folder: Path) -> PassageStore:
    """A new store in `folder` with the passages of `TEXTS`."""
    store = PassageStore.open(folder / "passages.db")
    for key, text in TEXTS.items():
        store.add(key, [(0, chunk) for chunk in split(text)])
    return store
