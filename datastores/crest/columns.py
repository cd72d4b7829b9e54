"""Columns of numbers that may outgrow the memory: in a file without a name beyond some size.

Reading and writing go by slices, so what is in memory is what the caller holds. The file is in a
folder of the caller's choice, since the system's own may be memory, and is gone with its column.
Refuses to know what the numbers mean.
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
"""Of one column that stay in memory."""


class SpilledColumn:
    """Numbers of one type. Methods raise OSError if the file cannot be read or written."""

    def __init__(self, dtype: DTypeLike, folder: Path | None = None) -> None:
        """Args:
        folder: of the file; None for the system's.
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
        """Add `values` at the end."""
        self.write(self._length, values)

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Put `values` where the number `start` is, and the ones after it."""
        self._file.seek(start * self._dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, self._dtype).tobytes())
        self._length = max(self._length, start + len(values))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The numbers from `start` to before `stop`, as far as there are any."""
        self._file.seek(start * self._dtype.itemsize)
        found = self._file.read(max(stop - start, 0) * self._dtype.itemsize)
        return np.frombuffer(found, self._dtype)


class Columns:
    """Columns that are opened together and closed together."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def new(self, dtype: DTypeLike) -> SpilledColumn:
        """Another, empty column."""
        return self._open.enter_context(SpilledColumn(dtype, self._folder))


@contextmanager
def open_columns(folder: Path | None = None) -> Iterator[Columns]:
    """Columns for the time of this.

    Raises:
        StoreError: a file cannot be read or written, as on a full disk.
    """
    try:
        with Columns(folder) as columns:
            yield columns
    except OSError as error:
        raise StoreError(f"cannot index in {folder}: {error.strerror}; make room there") from error
