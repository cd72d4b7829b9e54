"""`specchat sources`: what was imported."""

from __future__ import annotations

import json
from dataclasses import asdict
from time import localtime, strftime

import click

from app.cli.library import opened
from app.cli.terminal import amount
from app.importing.listing import Listed, listed
from app.locations import locate
from app.options import Options
from app.sanitise import one_line

LINE = 2000


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def sources(options: Options, as_json: bool) -> None:
    """List what was imported, by the paths that `forget` takes."""
    locations = locate(options.data_dir)
    with opened(locations):
        found = listed(locations)
    if as_json:
        click.echo(json.dumps({"sources": [_as_json(one) for one in found]}))
        return
    if not found:
        click.echo("nothing was imported yet: specchat import PATH…", err=True)
    for one in found:
        click.echo(line(one))


def line(one: Listed) -> str:
    """One source for people: its path first, since that is its name."""
    figures = [
        amount(one.source.documents, "document"),
        amount(one.source.characters, "character"),
        "+".join(one.source.kinds),
        *([strftime("%d %b %Y", localtime(one.note.at))] if one.note else []),
        *([] if one.whole else ["stopped half-way: import it again"]),
    ]
    return f"{one_line(one.source.path, LINE)}  ({', '.join(figures)})"


def _as_json(one: Listed) -> dict[str, object]:
    imported = one.note.at if one.note else None
    return {**asdict(one.source), "whole": one.whole, "imported": imported}
