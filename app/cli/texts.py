"""`specchat import`, `imports`, `find` and `forget`: the commands for imported texts."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import localtime, strftime

import click

from app.cli import stores
from app.cli.global_options import import_option, json_option, limit_option
from app.cli.output import MAX_LINE_CHARACTERS, StatusLine, duration
from app.cli.stores import MeaningReport, index_by_meaning, open_library, update_index
from app.config import Options
from app.conversation.imported_texts import open_embedding
from app.figures import amount
from app.importing import session
from app.importing.events import Event, FindingFiles, ImportFinished, ImportProgress, ImportReport
from app.importing.find_files import import_path_of
from app.importing.names import path_of
from app.importing.session import ListedImport, import_into, list_imports, read_imports
from app.indexing.passage_index import FoundPassage, Gate, open_passages, update
from app.indexing.passage_index import find as find_passages
from app.locations import Locations, locate
from app.runtime.deletion import delete_program_answers, forget_import
from app.sanitise import clean, one_line
from datastores.chats.records import PROGRAMS
from datastores.errors import InputError, ModelError, SpecchatError

MAX_NAMES = 10
"""Maximum skipped files listed for each reason on a terminal; a pipe gets all of them."""

SOON_S = 45.0
"""Longest time on every core that an import indexes by meaning unasked: on two that is a thousand
notes."""

NO_IMPORTS = "No imports. Add some with: specchat import PATH…"


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH…")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object that lists every skipped file."
)
@click.option(
    "--watch/--no-watch",
    default=None,
    help="Also import later changes to PATH while specchat is open, or stop.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name the import, to search it alone and to cite it.  [default: the name of PATH]",
)
@click.option(
    "--meaning/--no-meaning",
    default=None,
    help="Index by meaning however long it takes, or not now; by default if that takes less than a"
    " minute. The rest is indexed while specchat is open and idle.",
)
@click.pass_obj
def import_(
    options: Options,
    paths: tuple[Path, ...],
    as_json: bool,
    watch: bool | None,
    meaning: bool | None,
    name: str,
) -> None:
    """Import your files, to answer from them and to answer faster.

    PATH is a file, a folder or an archive. File types are detected: Markdown, plain text, source
    code, HTML, PDF, Word and OpenDocument texts (.docx, .odt), mails, notebooks, shell histories,
    and exports of ChatGPT, Claude, Gemini, Open WebUI, LM Studio, llama.cpp, specchat and most
    programs that write messages as JSON or JSONL. Folders follow .gitignore; folders of programs
    (node_modules, .obsidian) are left out unless PATH is one; secrets are removed. Re-importing
    adds only what is new. Ctrl-C stops; the same command resumes.
    """
    if Path("-") in paths and not os.path.exists("-"):
        raise InputError("standard input cannot be imported: save it to a file, and import that")
    if name and len(paths) > 1:
        raise InputError("--name is for one PATH: import them one by one")
    locations = locate(options.data_dir)
    status = StatusLine()
    try:
        report = _imported(paths, locations, status, as_json)
        if name:
            _rename(paths[0], name, locations, as_json)
        if watch is not None:
            _watch(paths, locations, watch, as_json)
        tokens = _indexed(options, locations, status)
        by_meaning = _indexed_by_meaning(locations, status, meaning)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM and SIGHUP
        status.clear()
        click.echo("stopped; what was imported is kept: run the same command to resume", err=True)
        raise
    if as_json:
        click.echo(_report_json(report, tokens, by_meaning))
        return
    if tokens:
        click.echo(f"indexed {amount(tokens, 'token')}")
    if by_meaning is not None and by_meaning.seconds_left:
        click.echo(_offer(by_meaning, paths))


def _imported(
    paths: Sequence[Path], locations: Locations, status: StatusLine, as_json: bool
) -> ImportReport:
    """Import `paths`, and print the summary unless the output is JSON."""
    report = ImportReport()
    try:
        with (
            # CREST is built from the chats as well.
            stores.open_history(locations),
            open_library(locations) as library,
            closing(import_into(library, locations, paths)) as events,
        ):
            for event in events:
                status.show(_line(event))
                if isinstance(event, ImportFinished):
                    status.clear()
                    report = event.report
                    if not as_json:
                        for line in summary(report):
                            click.echo(line)
    except InputError:
        if as_json:
            click.echo(_report_json(report, None, None))
        raise
    return report


def _rename(path: Path, name: str, locations: Locations, as_json: bool) -> None:
    import_path = import_path_of(path)
    with open_library(locations) as library:
        if library.names().get(import_path) in (None, name):
            return  # nothing was imported, or it has the name
        chosen = library.rename(import_path, name)
    if not as_json:
        click.echo(f"named {one_line(chosen, MAX_LINE_CHARACTERS)}")


def _watch(paths: Sequence[Path], locations: Locations, watched: bool, as_json: bool) -> None:
    known = read_imports(locations.imported)
    for import_path in (import_path_of(path) for path in paths):
        if import_path not in known or known[import_path].watched == watched:
            continue
        session.watch(locations.imported, import_path, watched)
        if not as_json:
            name = one_line(import_path, MAX_LINE_CHARACTERS)
            click.echo(f"watching {name}" if watched else f"no longer watching {name}")


def _indexed(options: Options, locations: Locations, status: StatusLine) -> int | None:
    """Index for the chosen model; returns the number of new tokens, None if it is not possible."""
    try:
        tokens = update_index(options, locations, status)
    except ModelError as error:
        click.echo(f"not indexed yet: {one_line(str(error), MAX_LINE_CHARACTERS)}", err=True)
        return None
    if tokens is None:
        click.echo("another specchat process is indexing it", err=True)
    return tokens


def _indexed_by_meaning(
    locations: Locations, status: StatusLine, wanted: bool | None
) -> MeaningReport | None:
    """Index by meaning for as long as that is `wanted`; None if it is not, or not possible."""
    if wanted is False:
        return None
    try:
        return index_by_meaning(locations, status, inf if wanted else SOON_S)
    except ModelError as error:
        reason = one_line(str(error), MAX_LINE_CHARACTERS)
        click.echo(f"not indexed by meaning: {reason}", err=True)
        return None


def _offer(by_meaning: MeaningReport, paths: Sequence[Path]) -> str:
    """How the rest can be indexed by meaning, in a line."""
    done = f"{by_meaning.embedded:,} of {amount(by_meaning.total, 'passage')}"
    quoted = " ".join(shlex.quote(one_line(str(path), MAX_LINE_CHARACTERS)) for path in paths)
    return (
        f"indexed {done} by meaning; the rest takes about {duration(by_meaning.seconds_left)}:"
        f" leave specchat open and idle, or run specchat import --meaning {quoted}"
    )


def summary(report: ImportReport) -> Iterator[str]:
    """The report as lines of text."""
    characters = amount(report.characters, "character")
    if report.documents:
        yield f"imported {amount(report.documents, 'document')}, {characters}"
    if report.unchanged:
        yield f"unchanged {amount(report.unchanged, 'document')}"
    few = MAX_NAMES if sys.stdout.isatty() else None
    removed = [
        (f"removed {amount(len(names), kind)}", list(dict.fromkeys(names)))
        for kind, names in report.secrets.items()
    ]
    skipped = [
        (f"skipped {len(names):,}: {reason}", names) for reason, names in report.skipped.items()
    ]
    for line, names in (*removed, *skipped):
        yield line
        yield from (f"    {one_line(name, MAX_LINE_CHARACTERS)}" for name in names[:few])
        if few is not None and len(names) > few:
            yield f"    … {len(names) - few:,} more (--json lists all)"


def _line(event: Event) -> str:
    if isinstance(event, FindingFiles):
        return f"found {event.files:,} files"
    if not isinstance(event, ImportProgress):
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


def _report_json(report: ImportReport, tokens: int | None, by_meaning: MeaningReport | None) -> str:
    meaning = asdict(by_meaning) if by_meaning is not None else None
    figures = {"redacted": report.redacted, "tokens": tokens, "meaning": meaning}
    return json.dumps({**asdict(report), **figures})


@click.command()
@json_option
@click.pass_obj
def imports(options: Options, as_json: bool) -> None:
    """List imports: name and path, either of which other commands take; and answers to programs."""
    locations = locate(options.data_dir)
    with open_library(locations), stores.open_history(locations) as chats:
        found, programs = list_imports(locations, {}), chats.program_answers()
    if as_json:
        listed = [_import_json(one) for one in found]
        click.echo(json.dumps({"imports": listed, PROGRAMS: asdict(programs)}))
        return
    if not found and not programs.answers:
        click.echo(NO_IMPORTS, err=True)
    for one in found:
        click.echo(line(one))
    if programs.answers:
        answers = amount(programs.answers, "answer")
        characters = amount(programs.characters, "character")
        click.echo(f"{answers} to programs, {characters} (`specchat forget --programs`)")


def line(one: ListedImport) -> str:
    """One import as a line."""
    figures = [
        amount(one.stored.documents, "document"),
        amount(one.stored.characters, "character"),
        "+".join(one.stored.kinds),
        *([strftime("%d %b %Y", localtime(one.record.at))] if one.record else []),
        *(["watched"] if one.watched else []),
        *([] if one.whole else ["incomplete: import it again"]),
    ]
    name, path = (
        one_line(text, MAX_LINE_CHARACTERS) for text in (one.stored.name, one.stored.path)
    )
    return f"{name}  {path}  ({', '.join(figures)})"


def _import_json(one: ListedImport) -> dict[str, object]:
    imported = one.record.at if one.record else None
    return {**asdict(one.stored), "whole": one.whole, "imported": imported, "watched": one.watched}


@click.command()
@click.argument("import_path", metavar="IMPORT", required=False)
@click.option("--programs", is_flag=True, help="Remove all answers to programs instead.")
@click.pass_obj
def forget(options: Options, import_path: str | None, programs: bool) -> None:
    """Remove an IMPORT, by its name or by the path it was imported from.

    No trace remains in specchat's files, except in chats, whose answers keep the paths and the
    titles of chats that they cite, and of texts that another import also has.
    """
    locations = locate(options.data_dir)
    if (import_path is None) != programs:
        raise click.UsageError("give either an IMPORT or --programs")
    if import_path is None:
        with stores.open_history(locations) as chats:
            answers = chats.program_answers().answers
            delete_program_answers(chats, locations)
        click.echo(f"removed {amount(answers, 'answer')} to programs")
        _indexed(options, locations, StatusLine())
        return
    with open_library(locations) as library, stores.open_history(locations) as chats:
        path = path_of(import_path, library.names())
        [gone] = [one for one in library.imports() if one.path == path]
        forget_import(library, chats, locations, gone.path)
    click.echo(
        f"removed {one_line(gone.path, MAX_LINE_CHARACTERS)}: {amount(gone.documents, 'document')}"
    )
    _indexed(options, locations, StatusLine())


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS…")
@import_option
@limit_option(5, "passages")
@json_option
@click.pass_obj
def find(
    options: Options, words: tuple[str, ...], chosen: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Find passages in your imported texts, best match first.

    Any of the WORDS may match, or words like them; rare ones count more. Passages that are indexed
    by meaning also match in other words. What matches much worse than the best passage is left out.
    """
    locations, status = locate(options.data_dir), StatusLine()
    with open_library(locations) as library, closing(open_passages(locations)) as passages:
        names = library.names() if chosen else {}
        paths = frozenset(path_of(one, names) for one in chosen)
        for left in update(library, passages):
            status.show(f"indexing {amount(left, 'text')}")
        status.clear()
        query = " ".join(words)
        with closing(open_embedding(passages, locations, _warn)) as embedding:
            found = find_passages(
                library,
                passages,
                query,
                limit,
                paths,
                gate=Gate.MATCHING,
                dense=embedding.retriever(),
            )
        empty = passages.empty
    if as_json:
        click.echo(json.dumps({"passages": [_passage_json(one) for one in found]}))
        return
    for one in found:
        click.echo("\n".join(_passage_lines(one)))
    if not found:
        click.echo(NO_IMPORTS if empty else "No match.", err=True)


def _warn(error: SpecchatError) -> None:
    click.echo(one_line(str(error), MAX_LINE_CHARACTERS), err=True)


def _passage_lines(one: FoundPassage) -> Iterator[str]:
    place = f"{one.path}:{one.chunk.first_line}"
    yield click.style(one_line(place, MAX_LINE_CHARACTERS), bold=True)
    if one.chunk.heading:
        yield one_line(one.chunk.heading, MAX_LINE_CHARACTERS)
    yield ""
    yield from (f"    {clean(line)}" for line in one.chunk.content.split("\n"))
    yield ""


def _passage_json(one: FoundPassage) -> dict[str, object]:
    return {
        "import_path": one.import_path,
        "file": one.file,
        "title": one.title,
        "heading": one.chunk.heading,
        "first_line": one.chunk.first_line,
        "last_line": one.chunk.last_line,
        "score": one.score,
        "text": one.chunk.content,
    }
