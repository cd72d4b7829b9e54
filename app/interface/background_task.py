"""A job that outlives the dialog that started it: an import, a deletion, a download.

The base class runs one job at a time, cancels it and notifies a dialog of its progress; subclasses
define the job and announce its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from textual.worker import Worker

from app.interface.chat.conversation import Conversation
from app.interface.workers import start_worker

if TYPE_CHECKING:
    from app.engine.engine import Engine

T = TypeVar("T")


class BackgroundTask:
    """Runs one job at a time on the interface's event loop."""

    def __init__(self, conversation: Conversation) -> None:
        """`conversation` runs the job and shows notifications; it outlives every dialog."""
        self._conversation = conversation
        self._listener: Callable[[], object] | None = None
        self._worker: Worker[None] | None = None
        self._running = asyncio.Lock()

    @property
    def watched(self) -> bool:
        """Whether an open dialog shows the progress."""
        return self._listener is not None

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call `listener` after each change, in place of the previous listener."""
        self._listener = listener

    def unsubscribe(self, listener: Callable[[], object]) -> None:
        """Stop calling `listener`, unless another has replaced it."""
        if self._listener == listener:
            self._listener = None

    def cancel(self) -> None:
        """Cancel the job; what it has stored is kept."""
        if self._worker is not None:
            self._worker.cancel()

    async def shutdown(self) -> None:
        """Cancel the job, and wait until its process or thread has ended."""
        self.cancel()
        async with self._running:
            pass

    def _start(self, job: Callable[[], Awaitable[None]]) -> None:
        self._worker = start_worker(self._conversation, self._run, job)

    async def _run(self, job: Callable[[], Awaitable[None]]) -> None:
        # A cancelled job holds the lock until its process or thread has ended.
        async with self._running:
            await job()

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run a step that cannot be interrupted; a cancelled job ends after it."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError as cancelled:
            await asyncio.wait([running])
            raise cancelled from running.exception()

    @property
    def _engine(self) -> Engine | None:
        model = self._conversation.model_thread.model
        return model.engine if model is not None else None

    def _notify_listener(self) -> None:
        if self._listener is not None:
            self._listener()
