"""`specchat export` and `restore`: chats out to files, and back."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from app.cli.history import opened
from app.exporting import as_json, as_markdown
from app.files import write_whole
from app.locations import locate
from app.options import Options
from app.restoring import restore as put_back
from app.sanitise import clean, one_line
from datastores.errors import InputError

FORMS = {"json": as_json, "md": as_markdown}


@click.command()
@click.argument("number", required=False, type=int, metavar="[CHAT]")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    help="json holds everything and can be put back; md is to read. [default: by FILE, else md]",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write here.")
@click.pass_obj
def export(options: Options, number: int | None, form: str | None, output: Path | None) -> None:
    """Write a chat, or all of them, as Markdown or JSON.

    CHAT is a number that `specchat chats` lists. Markdown has the thread as it is being read; JSON
    has the whole tree, all versions, and `specchat restore` puts it back.
    """
    if form is None:
        form = "json" if output is not None and output.suffix == ".json" else "md"
    with opened(locate(options.data_dir)) as history:
        chosen = history.chats() if number is None else [history.chat(number)]
        if not chosen:
            raise InputError("there are no chats to export yet")
        pieces = FORMS[form](history, sorted(chosen, key=lambda chat: chat.id))
        if output is None:
            show = clean if sys.stdout.isatty() else str
            for piece in pieces:
                click.echo(show(piece), nl=False, color=True)
        else:
            write_whole(output, pieces)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def restore(context: click.Context, file: Path) -> None:
    """Put the chats of an exported JSON FILE back.

    Those that are there already are left alone. To draft from other programs' chats, import them.
    """
    options: Options = context.ensure_object(Options)
    with opened(locate(options.data_dir)) as history:
        report = put_back(file, history)
    click.echo(f"{report.restored} put back, {report.present} already there", err=True)
    for flaw in report.flaws:
        click.echo(f"left out: {one_line(flaw)}", err=True)
    if report.flaws:
        context.exit(1)
