"""Opens the history and the library for a command, reports damage, and updates the index.

While a command has one of them open, somebody waits for it: idle work pauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import click

from app.cli.output import MAX_LINE_CHARACTERS, StatusLine, duration
from app.config import Options, load_config
from app.damage import found_damage, settle
from app.figures import amount
from app.foreground import Foreground
from app.indexing.corpus_index import IndexingProgress, open_index
from app.indexing.passage_index import open_passages
from app.indexing.refresh import refresh_passages
from app.locations import Locations
from app.models.discovery import resolve_model
from app.sanitise import one_line
from datastores.chats.history import History
from datastores.library.library import Library
from datastores.passages.embeddings import StoredVectors

if TYPE_CHECKING:
    from app.indexing.embedding_process import EmbeddingProgress

CLAIM_S = 5.0
"""Longest wait for idle work to give up the stores."""
MEASURED_S = 2.0
"""Time after which the speed of embedding is known well enough."""


@contextmanager
def open_history(locations: Locations, *, lasting: bool = False) -> Iterator[History]:
    """The history; damage found before or within is reported.

    Args:
        lasting: whether it is open for hours, so that idle work goes on.
    """
    locations.create()
    with (
        nullcontext() if lasting else Foreground(locations.foreground).work(),
        closing(History.open(locations.history)) as history,
        _reporting_damage(locations),
    ):
        yield history


@contextmanager
def open_library(locations: Locations) -> Iterator[Library]:
    """The library; damage found before or within is reported."""
    locations.create()
    with (
        Foreground(locations.foreground).work(),
        closing(Library.open(locations.library)) as library,
        _reporting_damage(locations),
    ):
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

    Passages need no model, so they are up to date even after a ModelError.

    Returns the number of new tokens, or None if another process is doing this.

    Raises:
        ModelError: the model's tokenizer cannot be read.
        StoreError: a store cannot be written.
    """
    from app.indexing.vocabularies import open_vocabulary

    with (
        closing(Library.open(locations.library)) as library,
        closing(open_passages(locations)) as passages,
    ):
        for progress in refresh_passages(library, passages):
            status.show(_line(progress))
    config = load_config(locations.settings)
    vocabulary = open_vocabulary(resolve_model(options.model or config.model, locations))
    tokens = 0
    with open_index(locations, vocabulary, config.crest.max_bytes) as index:
        if not index.lock.claim(CLAIM_S):
            return None
        for progress in index.run():
            status.show(_line(progress))
            tokens = progress.tokens
    status.clear()
    return tokens


@dataclass(frozen=True, slots=True)
class MeaningReport:
    """How far passages are indexed by meaning.

    Attributes:
        embedded, total: number of passages with a vector, and of all.
        seconds_left: estimated time for the rest; 0 for none.
    """

    embedded: int
    total: int
    seconds_left: float


def index_by_meaning(
    locations: Locations, status: StatusLine, limit_s: float = inf
) -> MeaningReport | None:
    """Embed what is not embedded, in this process; None if no embedding model is used.

    Stops once the CPU time for all of it, as measured so far, exceeds `limit_s` on every core. Wall
    time would depend on what other programs do just then.

    Raises:
        ModelError: the embedding model cannot be used.
        StoreError: a store cannot be written.
    """
    from app.indexing.embedding_process import embed, is_embedding_due
    from app.models.selection import choose_embedder
    from engines.llama.threads import default_threads

    path = choose_embedder(locations, load_config(locations.settings).embedding)
    if path is None:
        return None
    with closing(open_passages(locations)) as passages:
        if not is_embedding_due(passages, path):
            total = StoredVectors(passages).counts()[1]
            return MeaningReport(total, total, 0.0)
        begun: EmbeddingProgress | None = None
        left = 0.0
        for progress in embed(passages, path, locations):
            if begun is None:
                begun, started, cpu_started = progress, perf_counter(), process_time()
                continue
            rest = (progress.total - progress.done) / (progress.done - begun.done)
            left = rest * (perf_counter() - started)
            status.show(_meaning_line(progress, left))
            spent = (process_time() - cpu_started) / default_threads()
            if spent >= MEASURED_S and spent + rest * spent > limit_s:
                break
        status.clear()
        assert begun is not None, "the first progress comes before the first passage"
        return MeaningReport(progress.done, progress.total, left)


def _meaning_line(progress: EmbeddingProgress, left: float) -> str:
    share = f"{progress.done:,} of {amount(progress.total, 'passage')}"
    return f"indexing by meaning: {share} · {duration(left)} left"


def _line(progress: IndexingProgress) -> str:
    if progress.building:
        return "building the index"
    return f"indexing {progress.done:,} of {amount(progress.total, 'text')}"
