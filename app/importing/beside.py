"""An import in a process of its own, and its events, as `app.importing.child` tells them.

Owns that process, its start and its death. Refuses to know screens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.importing.events import Event, Finished, Progress, Report, Searching, Skipped
from app.locations import Locations
from datastores.errors import InputError, SpecchatError, StoreError

LINE_BYTES = 2**28
"""A line holds a tenth of a second's events, and the last one all names that were skipped."""

_ERRORS: Mapping[str, type[SpecchatError]] = {
    error.__name__: error for error in (InputError, StoreError)
}


async def import_beside(
    paths: Sequence[Path], locations: Locations
) -> AsyncGenerator[list[Event], None]:
    """Import `paths` into the library of `locations`; yields what happened, ten times a second.

    Closing it ends the process where it is: what is stored stays, and importing the same paths goes
    on from there.

    Raises:
        InputError, StoreError: as `import_paths`; also where the process dies of itself.
    """
    process = await _started(paths, locations)
    assert process.stdout is not None
    error: SpecchatError | None = None
    try:
        async for line in process.stdout:
            if not line.endswith(b"\n"):  # it died over it
                break
            told = json.loads(line)
            if isinstance(told, list):
                yield [_event(**event) for event in told]
            else:
                error = _ERRORS[told["kind"]](told["message"])
        code = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        # To the very end of its output: the loop may be closed right after this.
        await process.stdout.read()
        await process.wait()
    if error is None and code:
        error = StoreError(
            f"the import broke off (exit code {code}): what is in stays, and the same path goes on"
        )
    if error is not None:
        raise error


async def _started(paths: Sequence[Path], locations: Locations) -> Process:
    places = (locations.data, locations.cache, locations.config)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.importing.child",
        *map(str, (*places, *paths)),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=LINE_BYTES,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _event(kind: str, **fields: Any) -> Event:
    match kind:
        case "Searching":
            return Searching(**fields)
        case "Skipped":
            return Skipped(**fields)
        case "Progress":
            return Progress(**fields)
        case _:
            return Finished(Report(**fields["report"]))
