"""What follows a change of chats or imported texts: all that is built from them is updated.

Passages come first, since answers can use them at once and they need no model; token ids and CREST
of the model's tokenizer follow. `embedding` is separate, since it may take hours.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from time import monotonic

from app.indexing.corpus_index import CorpusIndex, IndexingProgress
from app.indexing.passage_index import names_of, open_passages, update
from app.locations import Locations
from datastores.library.library import Library
from datastores.passages.store import PassageStore
from datastores.pauses import pause_here

REPORT_INTERVAL_S = 0.1
"""Time between two reports about passages."""


def is_due(index: CorpusIndex, locations: Locations) -> bool:
    """Whether `refresh` has anything to do. Reads every key, so not for the interface's thread.

    Raises:
        StoreError: a store cannot be read.
    """
    with closing(open_passages(locations)) as passages:
        return passages.names() != names_of(index.corpus.library) or index.is_due()


def refresh_passages(library: Library, passages: PassageStore) -> Generator[IndexingProgress]:
    """Bring passages up to date; may be stopped at any yield.

    Raises:
        StoreError: a store cannot be read or written.
    """
    total, report_at = 0, 0.0
    for left in update(library, passages):
        pause_here()
        total = max(total, left)
        if monotonic() >= report_at:
            yield IndexingProgress(total - left, total, 0, imports=True)
            report_at = monotonic() + REPORT_INTERVAL_S


def refresh(
    index: CorpusIndex, locations: Locations, *, settle: bool = False
) -> Generator[IndexingProgress]:
    """Bring all that is due up to date; may be stopped at any yield, and the next call resumes.

    The caller holds `index.lock`. With `settle` CREST is rebuilt if anything was added since the
    last rebuild.

    Raises:
        StoreError: a store cannot be read or written.
    """
    with closing(open_passages(locations)) as passages:
        yield from refresh_passages(index.corpus.library, passages)
    yield from index.run(settle=settle)
