"""The library, opened for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from app.locations import Locations
from app.sanitise import one_line
from datastores.library import Library

LINE = 2000


@contextmanager
def opened(locations: Locations) -> Iterator[Library]:
    """The library, with a word on a damaged predecessor if there was one."""
    locations.create()
    with closing(Library.open(locations.library)) as library:
        if library.store.set_aside:
            aside = one_line(str(library.store.set_aside), LINE)
            click.echo(f"a damaged library was set aside as {aside}: import again", err=True)
        yield library
