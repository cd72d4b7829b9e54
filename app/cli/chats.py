"""`specchat chats`, `search`, `delete`, `export` and `restore`: the commands for stored chats."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click

from app.cli import stores
from app.cli.global_options import json_option, limit_option
from app.cli.stores import open_history
from app.config import Options
from app.conversation.export import as_json, as_markdown, write_whole
from app.conversation.restore import restore as put_back
from app.figures import amount
from app.locations import locate
from app.runtime.deletion import delete_chat, quarantined_histories
from app.sanitise import clean, one_line
from datastores.chats.records import Chat
from datastores.chats.search import Excerpt
from datastores.chats.search import search as find
from datastores.errors import InputError
from engines.chat_template.reasoning import without_marks


@click.command()
@json_option
@click.pass_obj
def chats(options: Options, as_json: bool) -> None:
    """List all chats by number, most recent first."""
    with open_history(locate(options.data_dir)) as history:
        found = history.chats()
    if as_json:
        click.echo(json.dumps({"chats": [asdict(chat) for chat in found]}))
        return
    for chat in found:
        click.echo(line(chat))
    if not found:
        click.echo("No chats yet.", err=True)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@limit_option(20, "results")
@json_option
@click.pass_obj
def search(options: Options, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find chats by words in titles and messages.

    All words must match; the last may be a prefix.
    """
    with open_history(locate(options.data_dir)) as history:
        hits = find(history, " ".join(words), limit, without_marks)
    if as_json:
        click.echo(json.dumps({"hits": [asdict(hit) for hit in hits]}))
        return
    for hit in hits:
        title = click.style(f"{hit.chat:>5}  {one_line(hit.title)}", bold=hit.message is None)
        click.echo(title if hit.message is None else f"{title}\n       {shown(hit.excerpt)}")
    if not hits:
        click.echo("No match.", err=True)


@click.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="CHAT…")
@click.option("-y", "--yes", is_flag=True, help="Skip the prompt.")
@click.pass_obj
def delete(options: Options, numbers: tuple[int, ...], yes: bool) -> None:
    """Permanently delete chats, by their numbers.

    `specchat chats` lists them. A chat is removed from every store: no trace remains in specchat's
    files.
    """
    locations = locate(options.data_dir)
    # Deleting from the stores for drafting needs the library as well.
    with open_history(locations) as history, stores.open_library(locations):
        doomed = [history.chat(number) for number in dict.fromkeys(numbers)]
        if not yes:
            confirm(doomed)
        for chat in doomed:
            delete_chat(history, locations, chat.id)
    click.echo(f"deleted {amount(len(doomed), 'chat')}", err=True)
    for copy in quarantined_histories(locations):
        click.echo(f"deleted chats may remain in a damaged history that was kept: {copy}", err=True)


def confirm(doomed: Sequence[Chat]) -> None:
    """Ask for confirmation.

    Raises:
        InputError: standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise InputError("deleting cannot be undone: use --yes to skip the prompt")
    for chat in doomed:
        click.echo(line(chat))
    click.confirm("Delete permanently?", abort=True)


def line(chat: Chat) -> str:
    """One chat in a list: number, time of the last message, title, marks."""
    when = f"{datetime.fromtimestamp(chat.updated):%Y-%m-%d %H:%M}"
    known = {"pinned": chat.pinned, "private": chat.private, "own settings": chat.tuned}
    marks = "".join(f"  ({name})" for name, marked in known.items() if marked)
    return f"{chat.id:>5}  {when}  {one_line(chat.title) or '(no title)'}{marks}"


def shown(excerpt: Excerpt) -> str:
    """An excerpt for a terminal, matches in bold."""
    return "".join(
        click.style(clean(text), bold=True) if found else clean(text)
        for text, found in excerpt.pieces()
    )


FORMS = {"json": as_json, "md": as_markdown}


@click.command()
@click.argument("number", required=False, type=int, metavar="[CHAT]")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    help="json is complete and restorable; md is for reading. [default: by FILE, else md]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE."
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@click.pass_obj
def export(
    options: Options, number: int | None, form: str | None, output: Path | None, force: bool
) -> None:
    """Export one chat or all of them, as Markdown or JSON.

    CHAT is a number that `specchat chats` lists. Markdown has the open thread; JSON has all
    versions of every message, and `specchat restore` restores it.
    """
    if form is None:
        form = "json" if output is not None and output.suffix == ".json" else "md"
    with open_history(locate(options.data_dir)) as history:
        chosen = history.chats() if number is None else [history.chat(number)]
        if not chosen:
            raise InputError("no chats to export")
        pieces = FORMS[form](history, sorted(chosen, key=lambda chat: chat.id))
        if output is None:
            show = clean if sys.stdout.isatty() else str
            for piece in pieces:
                click.echo(show(piece), nl=False, color=True)
        else:
            write_whole(output, pieces, overwrite=force)
            exported = amount(len(chosen), "chat")
            click.echo(f"Exported {exported} to {one_line(str(output))}", err=True)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def restore(context: click.Context, file: Path) -> None:
    """Restore chats from an exported JSON FILE, or from a damaged history that was set aside.

    Existing chats are not changed. To use chats from other programs, import them.
    """
    options: Options = context.ensure_object(Options)
    with open_history(locate(options.data_dir)) as history:
        report = put_back(file, history)
    click.echo(f"{report.restored} restored, {report.present} already there", err=True)
    for flaw in report.flaws:
        click.echo(f"skipped: {one_line(flaw)}", err=True)
    if report.flaws:
        context.exit(1)
