"""The reading side of a store file, on the decoding thread.

It has a read-only connection of its own, so that it never waits for the writer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from datastores.storage.integrity import translate_errors
from datastores.storage.sqlite import connect_reader, file_identity


class StoreReader(ABC):
    """An open file. Belongs to one thread at a time; every method raises StoreError if the file
    cannot be read."""

    def __init__(self, path: Path) -> None:
        """Open the file that its store made or converted at `path`."""
        self.path = path
        self._connect()

    def close(self) -> None:
        with translate_errors(self.path):
            self._connection.close()

    def refresh(self) -> None:
        """Notice another file in place of this one."""
        if file_identity(self.path) != self._identity:
            self.close()
            self._connect()

    def _connect(self) -> None:
        self._identity = file_identity(self.path)
        with translate_errors(self.path):
            self._connection = connect_reader(self.path)
            self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Read with the fresh connection, which shows whether the file can be read."""
