"""Keeps the corpus index of the loaded model up to date while specchat runs.

One thread polls about once a second and indexes a finished answer at once, in milliseconds. A child
process (`python -m app.indexing.indexer`) does longer work: an import, a deleted import, or a new
tokenizer. It also merges additions into the large store, after a minute without new ones and on
mains power.

The child has the lowest priority, since building CREST of a large library takes memory and minutes
and must not slow the answer being written. It pauses while somebody waits for any specchat, emits a
message for each step, and may be killed at any time. It exits when another process claims its lock,
to erase something or to index an import at once: what it holds in memory must not be written after
that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import Popen
from threading import Event, Thread
from time import monotonic

from app.foreground import Foreground
from app.indexing.corpus_index import CorpusIndex, IndexingProgress, open_index
from app.indexing.refresh import is_due, refresh
from app.indexing.vocabularies import open_vocabulary
from app.locations import Locations
from app.machine import on_battery
from app.remaining_time import RemainingTime
from datastores.errors import SpecchatError, StoreError
from datastores.pauses import pause_with
from engines.child_process import LOWEST_PRIORITY, ChildProcess, emit, run_child, start_detached
from engines.target import Vocabulary

NotifyIndexer = Callable[[IndexingProgress | None, SpecchatError | None], object]
"""Called with the worker's progress (None without a worker) and the last error."""

POLL_INTERVAL_S = 1.0
"""Delay after which a finished answer can be drafted from."""
RETRY_INTERVAL_S = 15.0
"""Time until the next attempt if another process is doing the same work."""
QUIET_S = 60.0
"""Time without a new message or import after which additions are merged into the large store."""
WORKER = "app.indexing.indexer"
EXIT_YIELDED = 75
"""Exit code of a worker that yielded the lock to another process; it is started again."""


class Indexer:
    """The indexing thread, from `start` to `close`.

    Attributes:
        progress: progress of the running worker; None if there is none.
        error: why the last worker failed; None if it did not.
        enabled: whether workers may run; finished answers are always indexed.
    """

    def __init__(
        self,
        locations: Locations,
        model: Path,
        vocabulary: Vocabulary,
        budget_bytes: int,
        notify: NotifyIndexer = lambda progress, error: None,
    ) -> None:
        """Index for `vocabulary`, the tokenizer of `model`.

        `notify` is called on the indexer's thread whenever `progress` or `error` changes.
        """
        self.progress: IndexingProgress | None = None
        self.error: SpecchatError | None = None
        self.enabled = True
        self._notify = notify
        self._locations = locations
        self._model = model
        self._vocabulary = vocabulary
        self._budget_bytes = budget_bytes
        self._worker: ChildProcess | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def switch(self, enabled: bool) -> None:
        """Allow workers, or stop the running one at once; its remaining work is done later."""
        self.enabled = enabled
        worker = self._worker
        if worker is not None and not enabled:
            worker.stop()

    def close(self) -> None:
        """Stop at once; remaining work is left for the next session."""
        self._closing.set()
        worker = self._worker
        if worker is not None:
            worker.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            with open_index(self._locations, self._vocabulary, self._budget_bytes) as index:
                self._poll(index)
        except SpecchatError as error:
            self._report(None, error)

    def _poll(self, index: CorpusIndex) -> None:
        corpus = index.corpus
        message, version = corpus.last_message(), corpus.library_version()
        due, merged, changed = True, False, monotonic()
        foreground = Foreground(self._locations.foreground)
        while not self._closing.is_set():
            if foreground.busy():
                self._closing.wait(POLL_INTERVAL_S)
                continue
            refused, current, before = False, corpus.library_version(), message
            if current != version:
                # Wait until the version is stable: an import is written in many transactions.
                version, due = current, True
            elif not self.enabled:
                due = True  # a stopped worker, or texts that arrive meanwhile
            elif due:
                due = refused = is_due(index, self._locations) and not self._run_worker(index)
            elif not merged and monotonic() - changed > QUIET_S:
                merged = True
                if index.merge_due() and not on_battery():
                    self._run_worker(index, settle=True)
            message, complete = _index_messages(index, message)
            due = due or not complete
            if due or message != before:
                merged, changed = False, monotonic()
            self._closing.wait(RETRY_INTERVAL_S if refused and complete else POLL_INTERVAL_S)

    def _run_worker(self, index: CorpusIndex, *, settle: bool = False) -> bool:
        """Run a worker process; False if it has to be started again later.

        With `settle` it rebuilds CREST if anything was added since the last rebuild.
        """
        if not index.lock.acquire():
            return False
        index.lock.release()
        failure = ""
        command = worker_command(self._locations, self._model, self._budget_bytes, settle=settle)
        with ChildProcess(*command) as worker:
            self._worker = worker
            if self._closing.is_set():
                # `close` may have been called before this worker existed.
                worker.stop()
            remaining = RemainingTime()
            try:
                for message in worker:
                    progress = IndexingProgress(**message)
                    left = remaining.update(progress.done, progress.total, monotonic())
                    self._report(replace(progress, seconds_left=left), None)
            except SpecchatError as error:
                failure = str(error)
            code = worker.code()
        self._worker = None
        self._report(None, self._worker_error(code, failure))
        return code != EXIT_YIELDED

    def _worker_error(self, code: int, failure: str) -> SpecchatError | None:
        """Why the worker failed. It is not started again until something changes."""
        if code in (0, EXIT_YIELDED) or self._closing.is_set() or not self.enabled:
            return None
        return StoreError(f"indexing failed: {failure or f'exit code {code}'}")

    def _report(self, progress: IndexingProgress | None, error: SpecchatError | None) -> None:
        self.progress, self.error = progress, error
        self._notify(progress, error)


def catch_up(
    locations: Locations,
    model: Path,
    vocabulary: Vocabulary,
    budget_bytes: int,
    message: int,
) -> Popen[bytes] | None:
    """Index the messages after `message` before a command ends.

    Longer work is left to a detached process, which is returned; None without it.

    Raises:
        StoreError: a store cannot be read or written.
    """
    with open_index(locations, vocabulary, budget_bytes) as index:
        _, complete = _index_messages(index, message)
        settle = index.merge_due() and not on_battery()
        if complete and not settle and not index.is_due():
            return None
    return start_detached(*worker_command(locations, model, budget_bytes, settle=settle))


def worker_command(
    locations: Locations, model: Path, budget_bytes: int, *, settle: bool = False
) -> tuple[str, ...]:
    """The worker's module and arguments."""
    folders = (locations.data, locations.cache, locations.config)
    return (WORKER, *map(str, (model, *folders, budget_bytes, int(settle))))


def _index_messages(index: CorpusIndex, message: int) -> tuple[int, bool]:
    """Index the messages after `message`; returns the last one seen, and whether all fitted."""
    keys, last = index.corpus.messages_since(message)
    if not keys:
        return last, True
    if not index.lock.acquire():
        return message, True
    try:
        return last, index.learn(keys)
    finally:
        index.lock.release()


CHECK_INTERVAL_S = 0.2
"""Time between two checks whether another process claims the stores."""


def bring_up_to_date(arguments: Sequence[str]) -> None:
    """In the child: do all that is due, unless another process does it.

    Args:
        arguments: model file; data, cache and configuration directory; size limit of CREST in
            bytes; 1 to rebuild CREST if anything was added since the last rebuild, else 0.
    """
    model, data, cache, config, budget, settle = arguments
    locations = Locations(Path(data), Path(cache), Path(config))
    vocabulary = open_vocabulary(Path(model))
    pause_with(Foreground(locations.foreground).wait)
    with open_index(locations, vocabulary, int(budget)) as index, _exit_when_preempted(index):
        if index.lock.acquire():
            for progress in refresh(index, locations, settle=settle == "1"):
                emit(asdict(progress))


@contextmanager
def _exit_when_preempted(index: CorpusIndex) -> Iterator[None]:
    """Exit the process, from a thread, as soon as another process claims the stores."""
    before, done = index.lock.last_claimed(), Event()

    def watch() -> None:
        while not done.wait(CHECK_INTERVAL_S):
            if index.lock.last_claimed() != before:
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
