"""Learns, while a model is idle, what its states tell about passages and questions.

It reads notes that were written for this, with questions, and saves the states of some notes at a
time, so that the next session continues where this one ended. Only where texts were imported: for
nothing else the classifier is needed (`app.engine.answerability`). A child of the lowest priority,
`python -m app.runtime.idle_answerability`, learns it from the states, since that takes minutes of
processor time where they are wide.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np

from app.engine.answerability import Answerability
from app.engine.asked_notes import AskedNote, read_notes
from app.foreground import Foreground
from app.locations import Locations
from datastores.errors import ModelError, StoreError
from datastores.pauses import pause_with
from datastores.storage.files import WorkLock, write_bytes_atomic
from engines.answerability import AnswerabilityClassifier, learn, write_classifier
from engines.child_process import LOWEST_PRIORITY, ChildProcess, run_child
from engines.state_encoding import waited
from engines.target import Floats, LayerStates, Stop, StoppedError

LOGGER = logging.getLogger("specchat.answerability")

NOTES = 400
"""Notes to read, of all subjects. The area under the curve of Qwen2.5-Coder 1.5B on the questions
about others is .89 after 90 of them, and .92 after 600."""
PART = 20
"""Notes whose states are saved together."""
LEARNER = "app.runtime.idle_answerability"
"""The child's module."""


def learn_when_idle(answerability: Answerability, locations: Locations) -> Generator[None]:
    """Learn the classifier of a model, unless there is one or another process is at it; yields
    after each note, and begins a note again after an answer.

    If it is closed, the next call continues the work. A model whose layers cannot be read is not
    tried again by this process, and the reason is in the log.

    Raises:
        StoreError: what was learned cannot be written, or read again.
    """
    folder = answerability.path.with_suffix(".parts")
    if answerability.usable and answerability.classifier is None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield from _learn_alone(answerability, folder, Foreground(locations.foreground))
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from error
    if answerability.classifier is not None:
        shutil.rmtree(folder, ignore_errors=True)


def every(notes: Sequence[AskedNote], count: int) -> Sequence[AskedNote]:
    """`count` of `notes`, evenly spread."""
    return [notes[place * len(notes) // count] for place in range(min(count, len(notes)))]


def learn_from(
    layers: Sequence[int], notes: Sequence[AskedNote], states: Floats
) -> AnswerabilityClassifier:
    """The classifier of `states` after the questions about `notes`, as `Answerability.states`."""
    answered = [[True] * len(one.answered) + [False] * len(one.unanswered) for one in notes]
    texts = [[number] * len(one) for number, one in enumerate(answered)]
    return learn(layers, states, np.concatenate(answered), np.concatenate(texts))


def _learn_alone(
    answerability: Answerability, folder: Path, foreground: Foreground
) -> Generator[None]:
    """Learn the classifier, unless another process is at it."""
    lock = WorkLock(folder.with_suffix(".lock"))
    try:
        if lock.acquire() and answerability.classifier is None:
            yield from _learn(answerability, folder, foreground)
    finally:
        lock.release()


def _learn(answerability: Answerability, folder: Path, foreground: Foreground) -> Generator[None]:
    """Read the notes that `folder` lacks, and write the classifier."""
    try:
        layers = answerability.open_layers()
        for part, notes in _parts(folder):
            if not _is_whole(part, notes, len(layers.layers)):
                states = []
                for note in notes:
                    stop = foreground.busy
                    states.append((yield from _read(answerability, layers, note, stop)))
                _save(part, np.concatenate(states))
    except ModelError as error:
        LOGGER.warning("passages are used unchecked: %s", error)
        answerability.usable = False
        return
    given = (answerability.path, folder, foreground.folder, *layers.layers)
    del layers
    with ThreadPoolExecutor(1, "answerability") as thread, ChildProcess(LEARNER, *given) as child:
        yield from waited(thread.submit(list, child), None)
        if code := child.code():
            raise StoreError(f"learning {answerability.path} failed (exit code {code})")


def _parts(folder: Path) -> Iterator[tuple[Path, Sequence[AskedNote]]]:
    """The files in `folder`, and the notes of each."""
    notes = every(read_notes(), NOTES)
    for start in range(0, len(notes), PART):
        yield folder / f"{start}.npy", notes[start : start + PART]


def _read(
    answerability: Answerability, layers: LayerStates, note: AskedNote, stop: Stop
) -> Generator[None, None, Floats]:
    """The states after the questions about `note`; begun again after an interruption."""
    while True:
        yield
        try:
            return answerability.states(layers, note, stop)
        except StoppedError:
            continue


def _save(path: Path, states: Floats) -> None:
    content, largest = BytesIO(), np.finfo(np.float16).max
    np.save(content, states.clip(-largest, largest).astype(np.float16))
    write_bytes_atomic(path, [content.getbuffer()])


def _load(path: Path, notes: Sequence[AskedNote], layers: int) -> Floats:
    """The states after the questions about `notes`, of a number of `layers`.

    Raises:
        StoreError: they are not in the file.
    """
    questions = sum(len(one.answered) + len(one.unanswered) for one in notes)
    try:
        states: Floats = np.load(BytesIO(path.read_bytes()), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if states.ndim != 3 or states.shape[:2] != (questions, layers):
        raise StoreError(f"{path} is of other notes or layers")
    return states


def _is_whole(part: Path, notes: Sequence[AskedNote], layers: int) -> bool:
    """Whether the states after the questions about `notes` were saved; what is damaged is read
    again."""
    try:
        return part.exists() and bool(len(_load(part, notes, layers)))
    except StoreError as error:
        LOGGER.warning("%s", error)
        return False


def learn_from_parts(arguments: Sequence[str]) -> None:
    """In the child: learn from the saved states, and write the classifier.

    Args:
        arguments: the classifier's file, the states' folder, that of the marks of who waits
            (`app.foreground`), and the layers.

    Raises:
        StoreError: the states cannot be read, or the classifier cannot be written.
    """
    path, folder, marks, *layers = arguments
    pause_with(Foreground(Path(marks)).wait)
    parts = list(_parts(Path(folder)))
    states = np.concatenate([_load(part, notes, len(layers)) for part, notes in parts])
    notes = [note for _, given in parts for note in given]
    classifier = learn_from([int(layer) for layer in layers], notes, states)
    try:
        write_classifier(Path(path), classifier)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


if __name__ == "__main__":
    run_child(learn_from_parts, niceness=LOWEST_PRIORITY)
