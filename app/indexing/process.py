"""The child process that updates one tokenizer's stores: `python -m app.indexing.process`.

A process of its own, at the lowest priority: building CREST takes memory, and minutes if the
library is large, and neither may slow the answer that is being written. It emits one message for
each step. It may be killed at any time, and exits by itself when another process has to erase
something: what it holds in memory must not be written after that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

from app.child_process import LOWEST_PRIORITY, emit, run_child
from app.indexing.corpus_index import CorpusIndex, open_index
from app.indexing.indexer import EXIT_YIELDED
from app.indexing.passage_index import update_passages
from app.locations import Locations
from engines.llama.vocabulary import load_vocabulary

CHECK_INTERVAL_S = 0.2
"""Seconds between two checks whether another process requests the stores."""


def bring_up_to_date(arguments: Sequence[str]) -> None:
    """In the child: do all that is due, unless another process does it.

    Args:
        arguments: model file; data, cache and configuration directory; bytes CREST may take; 1 to
            rebuild CREST if anything was added since it was rebuilt, else 0.
    """
    model, data, cache, config, budget, settle = arguments
    locations = Locations(Path(data), Path(cache), Path(config))
    vocabulary = load_vocabulary(Path(model))
    with open_index(locations, vocabulary, int(budget)) as index, _exit_when_preempted(index):
        if index.lock.acquire():
            update_passages(locations, index.corpus.library)
            for progress in index.run(settle=settle == "1"):
                emit(asdict(progress))


@contextmanager
def _exit_when_preempted(index: CorpusIndex) -> Iterator[None]:
    """Exit the process, from a thread, as soon as another one requests the stores."""
    before, done = index.last_wanted(), Event()

    def watch() -> None:
        while not done.wait(CHECK_INTERVAL_S):
            if index.last_wanted() != before:
                os._exit(EXIT_YIELDED)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


if __name__ == "__main__":
    run_child(bring_up_to_date, niceness=LOWEST_PRIORITY)
