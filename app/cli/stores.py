"""Bringing what the person's model drafts from up to date, in the foreground, for commands.

Opening the history for a command.

The library, opened for a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from app.cli.output import StatusLine, amount
from app.config import Options, load_config
from app.indexing.corpus_index import Projecting, opened
from app.locations import Locations
from app.models.discovery import path_of
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.library.library import Library


@contextmanager
def open_history(locations: Locations) -> Iterator[History]:
    """The history; says so where a damaged one was set aside."""
    locations.create()
    with closing(History.open(locations.history)) as history:
        if history.store.set_aside:
            click.echo(f"a damaged history was set aside as {history.store.set_aside}", err=True)
        yield history


LINE = 2000


@contextmanager
def open_library(locations: Locations) -> Iterator[Library]:
    """The library, with a word on a damaged predecessor if there was one."""
    locations.create()
    with closing(Library.open(locations.library)) as library:
        if library.store.set_aside:
            aside = one_line(str(library.store.set_aside), LINE)
            click.echo(f"a damaged library was set aside as {aside}: import again", err=True)
        yield library


def project(options: Options, locations: Locations, status: StatusLine) -> int | None:
    """Make every text ready for drafting with the chosen model's tokenizer.

    Returns the number of tokens that were new, or None where another process is at it.

    Raises:
        ModelError: the model's tokenizer cannot be read.
        StoreError: a store cannot be written.
    """
    from engines.llama.vocabulary import load_vocabulary

    config = load_config(locations.settings)
    vocabulary = load_vocabulary(path_of(options.model or config.model, locations))
    tokens = 0
    with opened(locations, vocabulary, config.crest.max_bytes) as projection:
        if not projection.lock.take():
            return None
        for progress in projection.run(settle=True):
            status.show(_line(progress))
            tokens = progress.tokens
    status.clear()
    return tokens


def _line(progress: Projecting) -> str:
    if progress.building:
        return "building what is drafted from"
    return f"tokenising {progress.done:,} of {amount(progress.total, 'text')}"
