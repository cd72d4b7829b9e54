"""Keeps the loaded model's view of texts and chats up to date while specchat runs.

Owns one thread, which looks about once a second, and the process it starts for what takes longer. A
finished answer is learnt at once, in milliseconds; an import, a forgotten source or a model whose
tokenizer is new here are worked off by `app.indexing.worker`. Refuses to know what is due and how
it is done (`app.indexing.corpus_index`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

from app.child_process import ChildProcess, start_detached
from app.indexing.corpus_index import CorpusIndex, IndexingProgress, opened, told_of_damage
from app.locations import Locations
from datastores.errors import SpecchatError, StoreError
from engines.target import Vocabulary

Tell = Callable[[IndexingProgress | None, SpecchatError | None], object]

INTERVAL = 1.0
"""Seconds between two looks; an answer can be drafted from this long after its end."""
PATIENCE = 15.0
"""Seconds until the next try where another process is at the same work."""
GAVE_WAY = 75
"""Exit code of a process that somebody could not wait for: it is to be started again."""


class Indexer:
    """The thread, from `start` to `close`.

    Attributes:
        progress: of the process at work; None while there is none.
        error: why the last work failed; None while all is well.
    """

    def __init__(
        self,
        locations: Locations,
        model: Path,
        vocabulary: Vocabulary,
        budget_bytes: int,
        tell: Tell = lambda progress, error: None,
    ) -> None:
        """For the tokenizer of `model`, a GGUF file, which is `vocabulary`.

        `tell` is called, on the indexer's thread, whenever `progress` or `error` changed.
        """
        self.progress: IndexingProgress | None = None
        self.error: SpecchatError | None = None
        self._tell = tell
        self._locations = locations
        self._model = model
        self._vocabulary = vocabulary
        self._budget = budget_bytes
        self._child: ChildProcess | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what is not done is done the next time."""
        self._closing.set()
        child = self._child
        if child is not None:
            child.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            with opened(self._locations, self._vocabulary, self._budget) as projection:
                if aside := projection.corpus.quarantined:
                    self._say(None, StoreError(told_of_damage(aside)))
                self._watch(projection)
        except SpecchatError as error:
            self._say(None, error)

    def _watch(self, projection: CorpusIndex) -> None:
        corpus = projection.corpus
        message, imports = corpus.last_message(), corpus.library_version()
        due = True
        while not self._closing.is_set():
            refused, now = False, corpus.library_version()
            if now != imports:
                # Only when it is quiet again: an import is written in many pieces.
                imports, due = now, True
            elif due:
                due = refused = projection.is_due() and not self._work_off(projection)
            message, fits = _learnt(projection, message)
            due = due or not fits
            self._closing.wait(PATIENCE if refused and fits else INTERVAL)

    def _work_off(self, projection: CorpusIndex) -> bool:
        """Let a process do all that is due; false where it has to be begun again later."""
        if not projection.lock.acquire():
            return False
        projection.lock.release()
        problem = ""
        with ChildProcess(*work_of(self._locations, self._model, self._budget)) as child:
            self._child = child
            try:
                for progress in child:
                    self._say(IndexingProgress(**progress), None)
                    if self._closing.is_set():
                        child.stop()
            except SpecchatError as error:
                problem = str(error)
            code = child.code()
        self._child = None
        self._say(None, self._trouble(code, problem))
        return code != GAVE_WAY

    def _trouble(self, code: int, problem: str) -> SpecchatError | None:
        """Why the process failed. It is not started again before something changes."""
        if code in (0, GAVE_WAY) or self._closing.is_set():
            return None
        return StoreError(
            f"texts could not be made ready for drafting: {problem or f'exit code {code}'}"
        )

    def _say(self, progress: IndexingProgress | None, error: SpecchatError | None) -> None:
        self.progress, self.error = progress, error
        self._tell(progress, error)


def catch_up(
    locations: Locations,
    model: Path,
    vocabulary: Vocabulary,
    budget_bytes: int,
    message: int,
    tell: Callable[[SpecchatError], object],
) -> Popen[bytes] | None:
    """Learn what was said after `message`, as a command does before it ends.

    `tell` hears of a library that was found damaged. What takes longer is left to a process that
    goes on by itself, which is returned, if any.

    Raises:
        StoreError: a store cannot be read or written.
    """
    with opened(locations, vocabulary, budget_bytes) as projection:
        if aside := projection.corpus.quarantined:
            tell(StoreError(told_of_damage(aside)))
        _, fits = _learnt(projection, message)
        if fits and not projection.is_due():
            return None
    return start_detached(*work_of(locations, model, budget_bytes))


def work_of(locations: Locations, model: Path, budget_bytes: int) -> tuple[str, ...]:
    """The process that works off all that is due: its module and what it is given."""
    places = (locations.data, locations.cache, locations.config)
    return ("app.indexing.worker", *map(str, (model, *places, budget_bytes)))


def _learnt(projection: CorpusIndex, message: int) -> tuple[int, bool]:
    """Learn what was said after `message`: from where to ask next, and whether all of it fitted."""
    keys, after = projection.corpus.messages_since(message)
    if not keys:
        return after, True
    if not projection.lock.acquire():
        return message, True
    try:
        return after, projection.learn(keys)
    finally:
        projection.lock.release()
