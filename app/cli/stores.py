"""Opening the history and the library for a command, and updating what drafts come from.

Owns the warnings about quarantined files. Refuses to know what commands do with the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from app.cli.output import MAX_LINE_CHARACTERS, StatusLine, amount
from app.config import Options, load_config
from app.indexing.corpus_index import IndexingProgress, open_index
from app.locations import Locations
from app.models.discovery import resolve_model
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.library.library import Library


@contextmanager
def open_history(locations: Locations) -> Iterator[History]:
    """The history; warns if a damaged one was quarantined."""
    locations.create()
    with closing(History.open(locations.history)) as history:
        if history.store.quarantined:
            click.echo(
                f"the history was damaged and was moved to {history.store.quarantined}", err=True
            )
        yield history


@contextmanager
def open_library(locations: Locations) -> Iterator[Library]:
    """The library; warns if a damaged one was quarantined."""
    locations.create()
    with closing(Library.open(locations.library)) as library:
        if library.store.quarantined:
            aside = one_line(str(library.store.quarantined), MAX_LINE_CHARACTERS)
            click.echo(
                f"the imports were damaged and were moved to {aside}: import again", err=True
            )
        yield library


def project(options: Options, locations: Locations, status: StatusLine) -> int | None:
    """Tokenise every text for the chosen model and update its CREST store.

    Returns the number of new tokens, or None if another process is doing this.

    Raises:
        ModelError: the model's tokenizer cannot be read.
        StoreError: a store cannot be written.
    """
    from app.indexing.vocabularies import open_vocabulary

    config = load_config(locations.settings)
    vocabulary = open_vocabulary(resolve_model(options.model or config.model, locations))
    tokens = 0
    with open_index(locations, vocabulary, config.crest.max_bytes) as projection:
        if not projection.lock.acquire():
            return None
        for progress in projection.run():
            status.show(_line(progress))
            tokens = progress.tokens
    status.clear()
    return tokens


def _line(progress: IndexingProgress) -> str:
    if progress.building:
        return "building the index"
    return f"indexing {progress.done:,} of {amount(progress.total, 'text')}"
