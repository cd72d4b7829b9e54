"""A scripted import in place of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from app.importing.events import Event, ImportProgress, ImportReport, SkippedFile
from app.locations import Locations
from datastores.errors import SpecchatError

READ = ImportProgress(
    name="projects/garden \x1b[31mplan.md",
    files=1234,
    total_files=5210,
    bytes=31_000_000,
    total_bytes=81_000_000,
    documents=1201,
    characters=4_812_221,
    seconds=11.2,
)
SKIPPED = [SkippedFile(f"pictures/{number}\x1b[2J.jpg", "binary") for number in range(60)]
SKIPPED += [SkippedFile("build", "ignored by .gitignore")]
SECRETS = {"password": ["deploy/\x1b[31mhosts.ini", "wiki.md"], "access token": ["wiki.md"]}
DONE = ImportReport(5210, 12, 22_000_000, SECRETS)
for _skip in SKIPPED:
    DONE.skipped.setdefault(_skip.reason, []).append(_skip.name)


class ScriptedImport:
    """An import that yields `batches`, then waits for `go_on` if it `holds`, and may fail.

    Attributes:
        asked: the paths of each import.
        closed: how many imports ended, in any way.
    """

    def __init__(self, *batches: list[Event], fails: SpecchatError | None, holds: bool) -> None:
        self.batches = batches
        self.fails = fails
        self.holds = holds
        self.go_on = asyncio.Event()
        self.asked: list[list[Path]] = []
        self.closed = 0

    async def __call__(
        self, paths: Sequence[Path], _: Locations
    ) -> AsyncGenerator[list[Event], None]:
        self.asked.append(list(paths))
        try:
            for batch in self.batches:
                yield batch
            if self.holds:
                await self.go_on.wait()
            if self.fails is not None:
                raise self.fails
        finally:
            self.closed += 1
