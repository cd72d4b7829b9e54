"""`specchat chats`, `search` and `delete`: the history from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click

from app.cli import library
from app.cli.history import opened
from app.forgetting import delete_chat, set_aside
from app.locations import locate
from app.options import Options
from app.sanitise import clean, one_line
from datastores.errors import InputError
from datastores.excerpts import Excerpt
from datastores.records import Chat
from datastores.search import search as find


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def chats(options: Options, as_json: bool) -> None:
    """List all chats by number, the one last written in first."""
    with opened(locate(options.data_dir)) as history:
        found = history.chats()
    if as_json:
        click.echo(json.dumps({"chats": [asdict(chat) for chat in found]}))
        return
    for chat in found:
        click.echo(line(chat))


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="WORD…")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="At most N places.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def search(options: Options, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find chats by words in titles and messages.

    All words must occur, the last one at least by its beginning.
    """
    with opened(locate(options.data_dir)) as history:
        hits = find(history, " ".join(words), limit)
    if as_json:
        click.echo(json.dumps({"hits": [asdict(hit) for hit in hits]}))
        return
    for hit in hits:
        title = click.style(f"{hit.chat:>5}  {one_line(hit.title)}", bold=hit.message is None)
        click.echo(title if hit.message is None else f"{title}\n       {shown(hit.excerpt)}")
    if not hits:
        click.echo("nothing found", err=True)


@click.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="CHAT…")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(options: Options, numbers: tuple[int, ...], yes: bool) -> None:
    """Delete chats for good, by the numbers that `specchat chats` lists.

    They leave every store; afterwards no byte of them is in any file of specchat's.
    """
    locations = locate(options.data_dir)
    # The texts are looked at, too: what is drafted from is compared with them.
    with opened(locations) as history, library.opened(locations):
        doomed = [history.chat(number) for number in dict.fromkeys(numbers)]
        if not yes:
            ask_first(doomed)
        for chat in doomed:
            delete_chat(history, locations, chat.id)
    click.echo(f"deleted {len(doomed)} {'chat' if len(doomed) == 1 else 'chats'}", err=True)
    for copy in set_aside(locations):
        click.echo(f"a damaged history may still hold what it held then: {copy}", err=True)


def ask_first(doomed: Sequence[Chat]) -> None:
    """Let the person confirm what is going to be deleted.

    Raises:
        InputError: there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise InputError("deleting cannot be undone: say --yes where nobody can be asked")
    for chat in doomed:
        click.echo(line(chat))
    click.confirm("Delete for good?", abort=True)


def line(chat: Chat) -> str:
    """A chat in a list: number, when it was last written in, marks, title."""
    when = f"{datetime.fromtimestamp(chat.updated):%Y-%m-%d %H:%M}"
    known = {"pinned": chat.pinned, "private": chat.private, "own settings": chat.tuned}
    marks = "".join(f"  ({name})" for name, marked in known.items() if marked)
    return f"{chat.id:>5}  {when}  {one_line(chat.title) or '(no title)'}{marks}"


def shown(excerpt: Excerpt) -> str:
    """An excerpt for a terminal, what was found in bold."""
    return "".join(
        click.style(clean(text), bold=True) if found else clean(text)
        for text, found in excerpt.pieces()
    )
