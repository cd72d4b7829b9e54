"""The download of a model, one at a time, which continues while the picker is closed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

from app.interface.background_task import BackgroundTask
from app.interface.chat.conversation import Conversation
from app.interface.keymap import keymap_of
from app.locations import Locations, model_folders
from app.models.discovery import model_name
from app.models.download import ModelDownload
from app.sanitise import one_line


class DownloadTask(BackgroundTask):
    """Downloads, pauses and resumes one model.

    Attributes:
        fetch: the current download; None before the first one.
    """

    def __init__(self, conversation: Conversation, locations: Locations) -> None:
        super().__init__(conversation)
        self._locations = locations
        self.fetch: ModelDownload | None = None

    def begin(self, wanted: str) -> None:
        """Download `wanted` instead of the current download, which can be resumed later."""
        self.cancel()
        self.fetch = ModelDownload(wanted)
        self.resume()

    def resume(self) -> None:
        """Resume the current download, unless it is running."""
        if self.fetch is not None and not self.fetch.running:
            self.fetch.running = True
            self._start(partial(self._download, self.fetch))

    def cancel(self) -> None:
        """Stop at once; the downloaded part is kept."""
        super().cancel()
        if self.fetch is not None:
            self.fetch.running = False
            self._notify_listener()

    async def _download(self, fetch: ModelDownload) -> None:
        async with aclosing(fetch.run(model_folders().hugging_face)) as updates:
            async for _ in updates:
                self._notify_listener()
        if fetch.path is not None:
            fetch.name = await asyncio.to_thread(model_name, fetch.path, self._locations)
        self._notify_listener()
        self._announce(fetch)

    def _announce(self, fetch: ModelDownload) -> None:
        """Notify of the end; an open picker shows failures itself."""
        if fetch.path is not None:
            hint = (
                ""
                if self.watched
                else keymap_of(self._conversation).fill(". Press {models} to open it.")
            )
            message = f"{one_line(fetch.name, 80)} is downloaded{hint}"
            self._conversation.notify(message, markup=False, timeout=15 if hint else 4)
        elif not self.watched:
            self._conversation.show_error(fetch.failure)
