"""`specchat forget`: one imported source, out of every store."""

from __future__ import annotations

import os
from pathlib import Path

import click

from app.cli import history
from app.cli.library import opened
from app.cli.projecting import project
from app.cli.terminal import Status, amount
from app.forgetting import forget_source
from app.importing.walk import stored
from app.locations import Locations, locate
from app.options import Options
from app.sanitise import one_line
from datastores.documents import Source
from datastores.errors import InputError, ModelError
from datastores.library import Library

LINE = 2000


@click.command()
@click.argument("source")
@click.pass_obj
def forget(options: Options, source: str) -> None:
    """Forget an imported SOURCE, by the path it was imported from.

    Nothing of it remains in any file of specchat's. Texts that another source has too stay.
    """
    locations = locate(options.data_dir)
    gone = _forgotten(source, locations)
    click.echo(f"forgot {one_line(gone.path, LINE)}: {amount(gone.documents, 'document')}")
    try:
        project(options, locations, Status())
    except ModelError as error:
        click.echo(f"the rest is not drafted from yet: {one_line(str(error), LINE)}", err=True)


def _forgotten(source: str, locations: Locations) -> Source:
    with opened(locations) as library, history.opened(locations) as chats:
        found = named(source, library)
        forget_source(library, chats, locations, found.path)
    return found


def named(source: str, library: Library) -> Source:
    """The source the person means: the path as it is listed, or one that leads there.

    Raises:
        InputError: nothing was imported from there.
    """
    path = Path(source).expanduser()
    names = {source, stored(os.path.abspath(path)), stored(os.path.realpath(path))}
    for known in library.sources():
        if known.path in names:
            return known
    raise InputError(f"nothing was imported from {source}: `specchat sources` lists what was")
