"""What follows a change of chats or imported texts: all that is built from them is updated.

Passages and their word counts come first, since answers can use them at once; token ids and CREST
of the model's tokenizer follow.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic

from app.indexing.corpus_index import CorpusIndex, IndexingProgress
from app.indexing.passage_index import passages_due, update_passages
from app.locations import Locations

REPORT_INTERVAL_S = 0.1
"""Time between two reports about passages."""


def is_due(index: CorpusIndex, locations: Locations) -> bool:
    """Whether `refresh` has anything to do. Reads every key, so not for the interface's thread.

    Raises:
        StoreError: a store cannot be read.
    """
    return index.is_due() or passages_due(locations, index.corpus.library)


def refresh(
    index: CorpusIndex, locations: Locations, *, settle: bool = False
) -> Generator[IndexingProgress]:
    """Bring all that is due up to date; may be stopped at any yield, and the next call resumes.

    The caller holds `index.lock`. With `settle` CREST is rebuilt if anything was added since the
    last rebuild.

    Raises:
        StoreError: a store cannot be read or written.
    """
    total, report_at = 0, 0.0
    for left in update_passages(locations, index.corpus.library):
        total = max(total, left)
        if monotonic() >= report_at:
            yield IndexingProgress(total - left, total, 0, imports=True)
            report_at = monotonic() + REPORT_INTERVAL_S
    yield from index.run(settle=settle)
