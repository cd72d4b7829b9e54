"""The model on its way here: fetched while chats go on, whether or not the picker is open.

Owns the one download at a time. What it is and how far it has come is `app.models.download`'s
business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from textual.widget import Widget
from textual.worker import Worker

from app.interface.commands.keymap import keys_of
from app.locations import elsewhere
from app.models.download import Fetch
from app.sanitise import one_line


class Fetching:
    """Fetches, stops and goes on.

    Attributes:
        fetch: the model at hand; None before the first.
        changed: called whenever it came on, stopped or ended; set by whoever shows it.
    """

    def __init__(self, owner: Widget) -> None:
        """`owner` lives as long as the interface, and says what ends unseen."""
        self.fetch: Fetch | None = None
        self.changed: Callable[[], object] | None = None
        self._owner = owner
        self._worker: Worker[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    def begin(self, wanted: str) -> None:
        """Fetch `wanted` instead of what is being fetched; that can be gone on with later."""
        self.stop()
        self.fetch = Fetch(wanted)
        self.go_on()

    def go_on(self) -> None:
        """Go on where it stopped."""
        if self.fetch is not None and not self.fetch.running:
            self.fetch.running = True
            self._worker = self._owner.run_worker(self._see_through(self.fetch))

    def stop(self) -> None:
        """Stop at once; what has come stays."""
        if self._worker is not None and self.fetch is not None:
            self._worker.cancel()
            self.fetch.running = False
            self._tell()

    async def leave(self) -> None:
        """Stop, and return when the process is gone."""
        self.stop()
        async with self._one_at_a_time:
            pass

    async def _see_through(self, fetch: Fetch) -> None:
        # The process of one that was stopped holds the files until it is gone.
        async with self._one_at_a_time, aclosing(fetch.run(elsewhere().hugging_face)) as steps:
            async for _ in steps:
                self._tell()
        self._tell()
        self._say(fetch)

    def _tell(self) -> None:
        if self.changed is not None:
            self.changed()

    def _say(self, fetch: Fetch) -> None:
        """Say how it ended; a person who sees the picker knows most of it."""
        if fetch.path is not None:
            way = keys_of(self._owner).fill(": {models} opens it") if self.changed is None else ""
            told = f"{one_line(fetch.name, 80)} is here{way}"
            self._owner.notify(told, markup=False, timeout=15 if way else 4)
        elif self.changed is None:
            told = one_line(fetch.failure, 400)
            self._owner.notify(told, severity="error", markup=False, timeout=15)
