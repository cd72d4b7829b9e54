"""Searches beside the screen, over one connection that stays open between them.

Opening checks the whole file, which takes longer than to search it.
"""

from __future__ import annotations

from threading import Lock

from datastores.history import History
from datastores.search import Hit, search


class Searching:
    """One search at a time, on whichever thread; from the first one until `close`."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._beside: History | None = None
        self._closed = False
        self._lock = Lock()

    def find(self, typed: str) -> list[Hit]:
        """What `typed` finds; nothing once closed.

        Raises:
            StoreError: the history cannot be read.
        """
        with self._lock:
            if self._closed:
                return []
            if self._beside is None:
                self._beside = self._history.beside()
            return search(self._beside, typed)

    def close(self) -> None:
        """Let the connection go, after the search at hand."""
        with self._lock:
            self._closed = True
            if self._beside is not None:
                self._beside.close()
