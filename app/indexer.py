"""Keeps the loaded model's view of texts and chats up to date while specchat runs.

Owns one thread, which looks about once a second, and the process it starts for what takes longer.
A finished answer is learnt at once, in milliseconds; an import, a forgotten source or a model whose
tokenizer is new here are worked off by `app.index_child`. Refuses to know what is due and how it is
done (`app.projection`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from app.locations import Locations
from app.projection import Projecting, Projection, opened
from datastores.errors import SpecchatError, StoreError
from engines.target import Vocabulary

INTERVAL = 1.0
"""Seconds between two looks; an answer can be drafted from this long after its end."""
PATIENCE = 15.0
"""Seconds until the next try where another process is at the same work."""


class Indexer:
    """The thread, from `start` to `close`.

    Attributes:
        progress: of the process at work; None while there is none.
        trouble: why the last work failed; None while all is well.
    """

    def __init__(
        self, locations: Locations, model: Path, vocabulary: Vocabulary, budget_bytes: int
    ) -> None:
        """For the tokenizer of `model`, a GGUF file, which is `vocabulary`."""
        self.progress: Projecting | None = None
        self.trouble: SpecchatError | None = None
        self._locations = locations
        self._model = model
        self._vocabulary = vocabulary
        self._budget = budget_bytes
        self._process: subprocess.Popen[str] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def close(self) -> None:
        """Stop at once; what is not done is done the next time."""
        self._closing.set()
        process = self._process
        if process is not None:
            process.kill()
        self._thread.join()

    def _run(self) -> None:
        try:
            with opened(self._locations, self._vocabulary, self._budget) as projection:
                self._watch(projection)
        except SpecchatError as error:
            self.trouble = error

    def _watch(self, projection: Projection) -> None:
        corpus = projection.corpus
        message = corpus.last_message()
        imports, due = None, True
        while not self._closing.is_set():
            if due or corpus.imports() != imports:
                imports = corpus.imports()
                due = projection.is_due() and not self._work_off(projection)
            message, fits = _learnt(projection, message)
            due = due or not fits
            self._closing.wait(PATIENCE if due and fits else INTERVAL)

    def _work_off(self, projection: Projection) -> bool:
        """Let a process do all that is due; false where another one is at it already."""
        if not projection.lock.take():
            return False
        projection.lock.release()
        self._process = start_child(
            self._locations, self._model, self._budget, output=subprocess.PIPE
        )
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.progress = Projecting(**json.loads(line))
                if self._closing.is_set():
                    process.kill()
        self.progress, self._process = None, None
        self._note(process.returncode)
        return True

    def _note(self, code: int) -> None:
        """Keep why the process failed. It is not started again before something changes."""
        if code and not self._closing.is_set():
            self.trouble = StoreError(
                f"texts could not be made ready for drafting (exit code {code}):"
                " `specchat import` on any of them tells why"
            )
        else:
            self.trouble = None


def catch_up(
    locations: Locations, model: Path, vocabulary: Vocabulary, budget_bytes: int, message: int
) -> subprocess.Popen[str] | None:
    """Learn what was said after `message`, as a command does before it ends.

    What takes longer is left to a process that goes on by itself, which is returned, if any.

    Raises:
        StoreError: a store cannot be read or written.
    """
    with opened(locations, vocabulary, budget_bytes) as projection:
        _, fits = _learnt(projection, message)
        if fits and not projection.is_due():
            return None
    return start_child(locations, model, budget_bytes, output=subprocess.DEVNULL)


def start_child(
    locations: Locations, model: Path, budget_bytes: int, output: int
) -> subprocess.Popen[str]:
    """Start `app.index_child`; it outlives this process where nobody reads its output."""
    places = [str(place) for place in (locations.data, locations.cache, locations.config)]
    return subprocess.Popen(
        [sys.executable, "-m", "app.index_child", str(model), *places, str(budget_bytes)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def _learnt(projection: Projection, message: int) -> tuple[int, bool]:
    """Learn what was said after `message`: from where to ask next, and whether all of it fitted."""
    keys, after = projection.corpus.said_since(message)
    if not keys:
        return after, True
    if not projection.lock.take():
        return message, True
    try:
        return after, projection.learn(keys)
    finally:
        projection.lock.release()
