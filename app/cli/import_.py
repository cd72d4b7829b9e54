"""`specchat import`: a person's own texts, into the library and into what is drafted from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from app.cli import history
from app.cli.library import opened
from app.cli.projecting import project
from app.cli.terminal import Status, amount, duration
from app.importing.events import Event, Finished, Progress, Report, Searching
from app.importing.session import import_into
from app.locations import Locations, locate
from app.options import Options
from app.sanitise import one_line
from datastores.errors import InputError, ModelError

FEW = 10
"""Names of each reason that a terminal is shown; whatever else reads this gets all of them."""
LINE = 2000


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with all that was skipped.")
@click.pass_obj
def import_(options: Options, paths: tuple[Path, ...], as_json: bool) -> None:
    """Import texts of yours, so that answers are drafted from them.

    PATH is a file, a folder or an archive. What each file is, is found out: Markdown, plain text,
    source code, HTML, PDF, notebooks, exports of ChatGPT, Claude and specchat, ShareGPT, JSONL with
    messages, shell histories. Folders follow .gitignore, and secrets are taken out. Importing again
    brings what is new. Ctrl-C stops, and the same command goes on from there.
    """
    locations = locate(options.data_dir)
    status = Status()
    try:
        report = _imported(paths, locations, status, as_json)
        tokens = _projected(options, locations, status)
    except KeyboardInterrupt:
        status.clear()
        click.echo("stopped: what is imported stays; the same command goes on from there", err=True)
        raise
    if as_json:
        click.echo(_as_json(report, tokens))
    elif tokens:
        click.echo(f"{amount(tokens, 'token')} ready to be drafted from")


def _imported(paths: Sequence[Path], locations: Locations, status: Status, as_json: bool) -> Report:
    """Import, and tell what was done unless that is to be one object at the end."""
    report = Report()
    try:
        with (
            # What is drafted from afterwards is the history's texts as well.
            history.opened(locations),
            opened(locations) as library,
            closing(import_into(library, locations, paths)) as events,
        ):
            for event in events:
                status.show(_line(event))
                if isinstance(event, Finished):
                    status.clear()
                    report = event.report
                    if not as_json:
                        for line in summary(report):
                            click.echo(line)
    except InputError:
        if as_json:
            click.echo(_as_json(report, None))
        raise
    return report


def _projected(options: Options, locations: Locations, status: Status) -> int | None:
    """The tokens new to the chosen model's tokenizer; None where they are not known yet."""
    try:
        tokens = project(options, locations, status)
    except ModelError as error:
        click.echo(f"not yet drafted from: {one_line(str(error), LINE)}", err=True)
        return None
    if tokens is None:
        click.echo("another specchat makes it ready to be drafted from", err=True)
    return tokens


def summary(report: Report) -> Iterator[str]:
    """The report for people, line by line."""
    characters = amount(report.characters, "character")
    if report.documents:
        yield f"imported {amount(report.documents, 'document')}, {characters}"
    if report.unchanged:
        yield f"unchanged {amount(report.unchanged, 'document')}"
    if report.redacted:
        yield f"took out {amount(report.redacted, 'secret')}"
    few = FEW if sys.stdout.isatty() else None
    for reason, names in report.skipped.items():
        yield f"skipped {len(names):,}: {reason}"
        yield from (f"    {one_line(name, LINE)}" for name in names[:few])
        if few is not None and len(names) > few:
            yield f"    … {len(names) - few:,} more (all of them with --json)"


def _line(event: Event) -> str:
    if isinstance(event, Searching):
        return f"found {event.files:,} files"
    if not isinstance(event, Progress):
        return ""
    left = event.seconds_left
    parts = [
        f"{event.files:,} of {amount(event.total_files, 'file')}",
        amount(event.documents, "document"),
        f"{event.rate / 1e6:.1f} MB/s",
        *([] if left is None else [f"{duration(left)} left"]),
        event.name,
    ]
    return " · ".join(parts)


def _as_json(report: Report, tokens: int | None) -> str:
    return json.dumps({**asdict(report), "tokens": tokens})
