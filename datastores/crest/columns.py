"""Columns of numbers that may outgrow the memory, which go to an unnamed file beyond some size.

Slices are read and written, so only those that the caller holds are in memory. The file is in a
folder of the caller's choice, since the system's own may be in memory; it is deleted with its
column.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from datastores.errors import StoreError

SPOOLED_BYTES = 1 << 24
"""Size up to which a column stays in memory."""


class SpilledColumn:
    """Numbers of one type. Methods raise OSError if the file cannot be read or written."""

    def __init__(self, dtype: DTypeLike, folder: Path | None = None) -> None:
        """Args:
        folder: for the file; None for the system's.
        """
        self._dtype = np.dtype(dtype)
        self._file = SpooledTemporaryFile(SPOOLED_BYTES, dir=str(folder) if folder else None)  # noqa: SIM115
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._length

    def append(self, values: NDArray[Any]) -> None:
        """Append `values`."""
        self.write(self._length, values)

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Replace the numbers from `start` on with `values`."""
        self._file.seek(start * self._dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self._length = max(self._length, start + len(values))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The numbers from `start` to before `stop`, as far as they exist."""
        self._file.seek(start * self._dtype.itemsize)
        found = self._file.read(max(stop - start, 0) * self._dtype.itemsize)
        return np.frombuffer(found, self._dtype)


class Columns:
    """Columns that are closed together."""

    def __init__(self, folder: Path | None, stack: ExitStack) -> None:
        self._folder = folder
        self._open = stack

    def new(self, dtype: DTypeLike) -> SpilledColumn:
        """Create an empty column."""
        return self._open.enter_context(SpilledColumn(dtype, self._folder))


@contextmanager
def open_columns(folder: Path | None = None) -> Iterator[Columns]:
    """Create columns, which are closed at the end of `with`.

    Raises:
        StoreError: a file cannot be read or written, as on a full disk.
    """
    try:
        with ExitStack() as stack:
            yield Columns(folder, stack)
    except OSError as error:
        raise StoreError(f"cannot index in {folder}: {error.strerror}; make room there") from error
