"""The child process that teaches the draft model: `python -m app.runtime.learning_process`.

A process of its own, at the lowest priority: training takes memory and minutes, and neither may
slow the answer that is being written. It runs one round (`engines.distillation.round`) and emits a
message for each step and one for the result; the first time, the target answers first what the
student knows (`app.runtime.known_answers`). It may be paused or killed at any time: only a whole
version is ever published, and the next round goes on from what was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from app.child_process import LOWEST_PRIORITY, emit, run_child
from app.engine.student import UNTRAINED_FILE, open_student
from app.engine.student_versions import drop_tainted, replay_path, versions_of
from app.indexing.vocabularies import open_vocabulary
from app.locations import Locations
from app.runtime.known_answers import answer_known, known_questions, known_records
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.round import RoundResult, TrainingStep, run_round
from engines.distillation.trainer import FROM_NOTHING, TrainingSettings
from engines.drafters.student import Student

KNOWN_FILE = "known.db"
"""In the folder of versions: the target's answers to what the original student knows."""
CONTEXT_LENGTH = 2048
"""Of the student while it is measured."""


def learn(arguments: Sequence[str]) -> None:
    """In the child: run one round, and say what came of it.

    Args:
        arguments: fingerprint and file of the target; file of the original student; data, cache and
            configuration directory.
    """
    target, model, student, *folders = arguments
    locations = Locations(*map(Path, folders))
    vocabulary, original = open_vocabulary(Path(model)), Path(student)

    def load(path: Path) -> Student:
        return open_student(path, vocabulary, CONTEXT_LENGTH, gpu_layers=0, threads=1)

    versions = versions_of(locations, target, original)
    known, questions = versions.folder / KNOWN_FILE, known_questions(Path(model), original)
    for done in answer_known(Path(model), known, questions):
        emit({"done": done, "steps": len(questions)})
    base = known_records(Path(model), known, vocabulary.size)
    settings = FROM_NOTHING if original.name == UNTRAINED_FILE else TrainingSettings()
    path = replay_path(locations, target)
    emit({"reading": True})  # not to be stopped before the next step: it would keep locks
    with closing(ReplayBuffer.open(path, target, vocabulary.size)) as buffer:
        for item in run_round(
            buffer, original, versions.folder, load, base=base, settings=settings
        ):
            if isinstance(item, TrainingStep):
                emit({"done": item.done, "steps": item.steps})
            elif isinstance(item, RoundResult):
                # What was removed meanwhile is in the version too.
                drop_tainted(locations)
                version = asdict(item.version) if item.version else None
                emit({"version": version, "reason": item.reason})


if __name__ == "__main__":
    run_child(learn, niceness=LOWEST_PRIORITY)
