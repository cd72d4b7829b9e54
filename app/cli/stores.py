"""Opens the history and the library for a command, reports damage, and updates the index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from app.cli.output import MAX_LINE_CHARACTERS, StatusLine
from app.config import Options, load_config
from app.damage import found_damage, settle
from app.figures import amount
from app.indexing.corpus_index import IndexingProgress, open_index
from app.indexing.refresh import refresh
from app.locations import Locations
from app.models.discovery import resolve_model
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.library.library import Library


@contextmanager
def open_history(locations: Locations) -> Iterator[History]:
    """The history; damage found before or within is reported."""
    locations.create()
    with closing(History.open(locations.history)) as history, _reporting_damage(locations):
        yield history


@contextmanager
def open_library(locations: Locations) -> Iterator[Library]:
    """The library; damage found before or within is reported."""
    locations.create()
    with closing(Library.open(locations.library)) as library, _reporting_damage(locations):
        yield library


@contextmanager
def _reporting_damage(locations: Locations) -> Iterator[None]:
    """Report damage before and after the block, each finding once for a command."""
    reported: set[Path] = click.get_current_context().meta.setdefault(__name__, set())
    try:
        _report_damage(locations, reported)
        yield
    finally:
        _report_damage(locations, reported)


def _report_damage(locations: Locations, reported: set[Path]) -> None:
    for damage in found_damage(locations):
        if damage.path not in reported:
            click.echo(one_line(damage.text, MAX_LINE_CHARACTERS), err=True)
            reported.add(damage.path)
            settle(damage)


def update_index(options: Options, locations: Locations, status: StatusLine) -> int | None:
    """Bring passages, and the chosen model's token ids and CREST, up to date.

    Returns the number of new tokens, or None if another process is doing this.

    Raises:
        ModelError: the model's tokenizer cannot be read.
        StoreError: a store cannot be written.
    """
    from app.indexing.vocabularies import open_vocabulary

    config = load_config(locations.settings)
    vocabulary = open_vocabulary(resolve_model(options.model or config.model, locations))
    tokens = 0
    with open_index(locations, vocabulary, config.crest.max_bytes) as index:
        if not index.lock.acquire():
            return None
        for progress in refresh(index, locations):
            status.show(_line(progress))
            tokens = progress.tokens
    status.clear()
    return tokens


def _line(progress: IndexingProgress) -> str:
    if progress.building:
        return "building the index"
    return f"indexing {progress.done:,} of {amount(progress.total, 'text')}"
