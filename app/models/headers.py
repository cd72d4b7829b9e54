"""The headers of model files, each read once: parsing one takes up to a tenth of a second."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from datastores.errors import ModelError
from engines.llama.metadata import Metadata, read_metadata

MOST = 1024
"""Files whose headers are remembered; of each a few kilobytes."""


def header(path: Path) -> Metadata:
    """What the file at `path` says of itself now.

    Raises:
        ModelError: it cannot be read, or is no model.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    return _read(path, status.st_size, status.st_mtime_ns)


@lru_cache(MOST)
def _read(path: Path, size: int, changed: int) -> Metadata:
    """The header of a file of that size and time of change, in nanoseconds."""
    return read_metadata(path)
