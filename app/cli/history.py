"""Opening the history for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from app.locations import Locations
from datastores.history import History


@contextmanager
def opened(locations: Locations) -> Iterator[History]:
    """The history; says so where a damaged one was set aside."""
    locations.create()
    with closing(History.open(locations.history)) as history:
        if history.store.set_aside:
            click.echo(f"a damaged history was set aside as {history.store.set_aside}", err=True)
        yield history
