"""`specchat locate`: where everything lies."""

from __future__ import annotations

import json

import click

from app.locations import locate as find
from app.options import Options
from app.sanitise import one_line


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def locate(options: Options, as_json: bool) -> None:
    """Print every path of specchat's own."""
    paths = {name: str(path) for name, path in find(options.data_dir).named().items()}
    if as_json:
        click.echo(json.dumps(paths))
        return
    for name, path in paths.items():
        click.echo(f"{name:<12}{one_line(path, limit=len(path) + 1)}")
