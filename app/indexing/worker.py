"""The process that brings one tokenizer's stores up to date: `python -m app.index_child`.

A process of its own, at the lowest priority: building CREST takes memory and minutes where a
library is large, and neither may cost the answer that is being written meanwhile. It may be killed
at any moment, and ends by itself where somebody has to forget something: what it holds in memory
must not be written after that. One line of JSON on standard output for each step, and one that
tells of its failure; when nobody reads them, it ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

from app.child_process import emit
from app.indexing.corpus_index import CorpusIndex, opened
from app.indexing.indexer import GAVE_WAY
from app.locations import Locations
from datastores.errors import SpecchatError
from engines.llama.vocabulary import load_vocabulary

LOWEST_PRIORITY = 19
CHECK_INTERVAL_S = 0.2
"""Seconds between two looks whether somebody cannot wait."""


def main(arguments: Sequence[str]) -> int:
    """Work off all that is due, unless another process is at it.

    Args:
        arguments: model file; data, cache and configuration directory; bytes CREST may take.
    """
    model, data, cache, config, budget = arguments
    _yield_to_others()
    locations = Locations(Path(data), Path(cache), Path(config))
    try:
        vocabulary = load_vocabulary(Path(model))
        with opened(locations, vocabulary, int(budget)) as projection, _giving_way(projection):
            if projection.lock.acquire():
                for progress in projection.run(settle=True):
                    emit(asdict(progress))
    except SpecchatError as error:
        emit({"error": str(error)})
        return 1
    return 0


@contextmanager
def _giving_way(projection: CorpusIndex) -> Iterator[None]:
    """End the process, in here, as soon as somebody cannot wait for it."""
    before, done = projection.wanted(), Event()

    def watch() -> None:
        while not done.wait(CHECK_INTERVAL_S):
            if projection.wanted() != before:
                os._exit(GAVE_WAY)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _yield_to_others() -> None:
    """Run only where nobody else wants to."""
    if sys.platform != "win32":
        os.nice(LOWEST_PRIORITY)
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
