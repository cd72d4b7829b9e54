"""`specchat sources`: what was imported."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from app.cli.library import opened
from app.cli.terminal import amount
from app.locations import locate
from app.options import Options
from app.sanitise import one_line
from datastores.documents import Source

LINE = 2000


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def sources(options: Options, as_json: bool) -> None:
    """List what was imported, by the paths that `forget` takes."""
    with opened(locate(options.data_dir)) as library:
        found = library.sources()
    if as_json:
        click.echo(json.dumps({"sources": [asdict(source) for source in found]}))
        return
    if not found:
        click.echo("nothing was imported yet: specchat import PATH…", err=True)
    for source in found:
        click.echo(line(source))


def line(source: Source) -> str:
    """One source for people: its path first, since that is its name."""
    figures = [
        amount(source.documents, "document"),
        amount(source.characters, "character"),
        "+".join(source.kinds),
        *([] if source.whole else ["stopped half-way: import it again"]),
    ]
    return f"{one_line(source.path, LINE)}  ({', '.join(figures)})"
