"""Runs changes of the history on one thread, in the order in which they were requested.

A write waits for seconds while another connection erases deleted rows, so the event loop awaits
`write` instead of blocking. Reads never wait (WAL), and need no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from datastores.chats.history import History

T = TypeVar("T")


class HistoryThread:
    """One change at a time; the connection is opened for the first one."""

    def __init__(self, history: History) -> None:
        """Changes use a new connection to `history`."""
        self._history = history
        self._connection: History | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="history")

    async def write(self, change: Callable[[History], T]) -> T:
        """The result of `change`, which runs even if the caller is cancelled.

        Raises:
            SpecchatError: as `change` does.
        """
        made = self._executor.submit(self._run, change)
        return await asyncio.shield(asyncio.wrap_future(made))

    def close(self) -> None:
        """Finish what was requested, and close the connection. May wait for a lock."""
        self._executor.shutdown()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, change: Callable[[History], T]) -> T:
        if self._connection is None:
            self._connection = self._history.new_connection()
        return change(self._connection)
