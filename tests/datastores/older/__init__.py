"""Databases as earlier versions of each store left them: `NAME-VERSION.db.xz`."""

from __future__ import annotations

import lzma
from pathlib import Path


def older_database(name: str, version: int) -> bytes:
    """The file of the store `name` as `version` left it."""
    return lzma.decompress((Path(__file__).parent / f"{name}-{version}.db.xz").read_bytes())
