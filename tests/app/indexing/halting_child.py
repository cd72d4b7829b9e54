"""The indexer's worker at normal priority; it comes to a halt after it has tokenized one text."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event as Flag
from unittest.mock import patch

from app.indexing import corpus_index
from app.indexing.corpus_index import CorpusIndex, IndexingProgress
from app.indexing.indexer import bring_up_to_date
from engines.child_process import run_child

run = CorpusIndex.run


def run_halfway(index: CorpusIndex, *, settle: bool) -> Iterator[IndexingProgress]:
    running = run(index, settle=settle)
    yield next(running)
    Flag().wait()


if __name__ == "__main__":
    corpus_index.SLICE_CHARACTERS = 1
    with patch.object(CorpusIndex, "run", run_halfway):
        run_child(bring_up_to_date)
