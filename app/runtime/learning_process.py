"""The child process that trains draft models: `python -m app.runtime.learning_process`.

It has the lowest priority and memory of its own, so that training does not slow answers. It runs
one round (`engines.distillation.round`) for the draft model and one for the draft head, and emits a
message for each step and result; in the first one, the target answers questions that the draft
model knows (`app.runtime.known_answers`). It may be paused or killed at any time: only whole
versions are published, and the next round continues from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from app.config import Options, load_config
from app.engine.draft_model import open_draft_model, training_settings
from app.engine.draft_model_versions import (
    HEAD_FOLDER,
    drop_tainted,
    head_versions,
    new_answers,
    replay_path,
    versions_of,
)
from app.engine.learned_state import costs_of
from app.engine.loading import answer_defaults
from app.indexing.vocabularies import open_vocabulary
from app.locations import Locations
from app.models.gguf_files import model_parts
from app.runtime.known_answers import answer_known, known_questions, known_records
from app.runtime.learning import HEAD_TOO
from datastores.errors import SpecchatError
from datastores.replay_buffer.store import ReplayBuffer
from engines.child_process import LOWEST_PRIORITY, emit, run_child
from engines.distillation.draft_model_trainee import DraftModelTrainee
from engines.distillation.head_trainee import HEAD, HeadTrainee
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.payoff import PassCosts
from engines.distillation.round import RoundResult, TrainingStep, run_round
from engines.distillation.versions import Versions
from engines.drafters.draft_model import DraftModel
from engines.drafters.head import MAX_DEPTH
from engines.sampler import Sampling
from engines.target import Vocabulary

Round = Generator[TrainingStep | RoundResult]
Begin = Callable[[ReplayBuffer], Round]

KNOWN_FILE = "known.db"
"""The target's answers to questions that the original draft model knows, in the folder of
versions."""
CONTEXT_LENGTH = 2048
"""Context length of the draft model while it is measured."""
COSTS_LENGTH = 512
"""Context length at which a head must pay off."""


def learn(arguments: Sequence[str]) -> None:
    """Run one round for each trainee, and emit the results.

    Args:
        arguments: fingerprint and file of the target; file of the original draft model, or empty;
            `HEAD_TOO` to train the draft head too, or empty; data, cache and configuration
            directory.
    """
    target, model, draft_model, head, *folders = arguments
    locations = Locations(*map(Path, folders))
    vocabulary = open_vocabulary(Path(model))
    path = replay_path(locations, target)
    prepared: list[tuple[Callable[[], Begin], bool]] = []
    given = locations, target, Path(model)
    if draft_model and not _waits(
        locations, target, versions_of(locations, target, Path(draft_model))
    ):
        prepared.append((partial(_draft_model_round, *given, Path(draft_model), vocabulary), False))
    if head == HEAD_TOO and not _waits(locations, target, head_versions(locations, target)):
        prepared.append((partial(_head_round, *given, vocabulary), True))
    failures: list[SpecchatError] = []
    for prepare, is_head in prepared:
        try:
            begin = prepare()
            emit({"reading": True})  # not to be paused before the next step, as it holds locks
            with closing(ReplayBuffer.open(path, target, vocabulary.size)) as buffer:
                _follow(begin(buffer), locations, head=is_head)
        except SpecchatError as error:
            failures.append(error)  # the other trainee may still learn
    if failures:
        raise failures[0]


def _waits(locations: Locations, target: str, versions: Versions) -> bool:
    """Whether the last trainings of `versions` gained nothing, and the next one is not due."""
    states = versions.folder.name == HEAD_FOLDER
    new = new_answers(locations, target, versions, with_states=states)
    return bool(new.halted and new.missing)


def _follow(items: Round, locations: Locations, *, head: bool) -> None:
    """Emit what a round yields, of the draft `head` or of the draft model."""
    for item in items:
        if isinstance(item, TrainingStep):
            emit({"done": item.done, "steps": item.steps})
        elif isinstance(item, RoundResult):
            # The version may have learned from records that were removed meanwhile.
            drop_tainted(locations)
            version = asdict(item.version) if item.version else None
            emit({"version": version, "reason": item.reason, "head": head})


def _pass_costs(locations: Locations, target: str) -> PassCosts | None:
    """The measured costs of the target's passes; None if it never ran here."""
    costs = costs_of(locations.costs, target)
    if not costs.state()["plain"]:
        return None
    plain = costs.plain(COSTS_LENGTH)
    return PassCosts(plain, [costs.ratio(max(rows, 1)) for rows in range(MAX_DEPTH + 2)])


def _sampling(locations: Locations, model: Path) -> Sampling:
    """The sampling settings of the person, for the gate."""
    return answer_defaults(Options(), load_config(locations.settings), model).sampling


def _head_round(locations: Locations, target: str, model: Path, vocabulary: Vocabulary) -> Begin:
    """The draft head's round."""
    costs = _pass_costs(locations, target)
    matrix, sampling = OutputMatrix(*model_parts(model)), _sampling(locations, model)
    trainee = HeadTrainee(matrix, target, vocabulary.stops, sampling, costs)
    folder = head_versions(locations, target).folder
    return partial(run_round, trainee=trainee, folder=folder, settings=HEAD)


def _draft_model_round(
    locations: Locations, target: str, model: Path, original: Path, vocabulary: Vocabulary
) -> Begin:
    """The draft model's round, after the target's answers to known questions."""

    def load(path: Path) -> DraftModel:
        return open_draft_model(path, vocabulary, CONTEXT_LENGTH, gpu_layers=0, threads=1)

    folder = versions_of(locations, target, original).folder
    known, questions = folder / KNOWN_FILE, known_questions(model, original)
    for done in answer_known(model, known, questions):
        emit({"done": done, "steps": len(questions)})
    return partial(
        run_round,
        trainee=DraftModelTrainee(original, load, _sampling(locations, model)),
        folder=folder,
        base=known_records(model, known, vocabulary.size),
        settings=training_settings(original),
    )


if __name__ == "__main__":
    run_child(learn, niceness=LOWEST_PRIORITY)
