"""An import in a process of its own, and its events, as `app.importing.child` tells them.

Owns that process, its start and its death. Refuses to know screens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.importing.events import Event, Finished, Progress, Report, Searching, Skipped
from app.locations import Locations
from datastores.errors import InputError, SpecchatError, StoreError

_ERRORS: Mapping[str, type[SpecchatError]] = {
    error.__name__: error for error in (InputError, StoreError)
}


class ImportBeside:
    """One import, from its making to its end; `stop` may be called by any thread."""

    def __init__(self, paths: Sequence[Path], locations: Locations) -> None:
        """Begin to import `paths` into the library of `locations`."""
        places = (locations.data, locations.cache, locations.config)
        self._stopped = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.importing.child", *map(str, (*places, *paths))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def batches(self) -> Iterator[list[Event]]:
        """What happens, some ten times a second; ends where it was stopped.

        Raises:
            InputError, StoreError: as `import_paths`; also where the process dies of itself.
        """
        error: SpecchatError | None = None
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.endswith("\n"):  # it was killed over it
                    break
                told = json.loads(line)
                if isinstance(told, list):
                    yield [_event(**event) for event in told]
                else:
                    error = _ERRORS[told["kind"]](told["message"])
        if error is None and process.returncode and not self._stopped:
            error = StoreError(
                f"the import broke off (exit code {process.returncode}):"
                " what is in stays, and the same path goes on from there"
            )
        if error is not None:
            raise error

    def stop(self) -> None:
        """End it where it is: what is stored stays, and importing the same paths goes on."""
        self._stopped = True
        self._process.kill()


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
