"""An import in a process of its own, and its events, as `app.importing.child` tells them.

Owns what its words mean. Refuses to know screens.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.children import AsyncChild
from app.importing.events import Event, Finished, Progress, Report, Searching, Skipped
from app.locations import Locations
from datastores.errors import InputError, SpecchatError, StoreError

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
    error: SpecchatError | None = None
    places = (locations.data, locations.cache, locations.config)
    async with AsyncChild("app.importing.child", *places, *paths) as child:
        async for told in child:
            if isinstance(told, list):
                yield [_event(**event) for event in told]
            else:
                error = _ERRORS[told["kind"]](told["message"])
        code = await child.code()
    if error is None and code:
        error = StoreError(
            f"the import broke off (exit code {code}): what is in stays, and the same path goes on"
        )
    if error is not None:
        raise error


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
