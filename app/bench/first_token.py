"""`python -m app.bench first-token`: the time to first token while the draft model trains.

Each question is asked twice, in turn: while the process that trains the draft model works, and
while it is paused. The time from the key press until training is paused counts, as in the
interface; the process is the product's own, at its priority, on the answers to the same questions.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from time import perf_counter, sleep

from app.bench.acceptance import StreamedAnswer
from app.chat_settings import AnswerEnd
from app.conversation.events import Wrote
from app.conversation.generation import GenerationRequest, generate
from app.conversation.statistics import Statistics
from app.engine.draft_model_versions import MIN_NEW_ANSWERS, NewAnswers, replay_path
from app.engine.engine import Engine
from app.locations import Locations
from app.runtime.learning import (
    Learner,
    LearningConditions,
    LearningNews,
    LearningProgress,
)
from datastores.errors import ModelError, SpecchatError
from datastores.replay_buffer.record import question_key
from datastores.replay_buffer.store import ReplayBuffer
from engines.chat_template.prompt_builder import Message
from engines.distillation.round import MAX_NEW
from engines.sampler import Sampling

PROCESS = "app.runtime.learning_process"
START_TIMEOUT_S = 60.0
"""Longest wait for a step of training."""
BEFORE_S = 0.5
"""Time that training works, or rests, before each question."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Seconds to the first token of one question, without and with training; `pause` is the part of
    `training` until the process was stopped."""

    resting: float
    training: float
    pause: float


class Training:
    """The training process, resumed and paused as idle time and a key press do.

    It learns from the answers in the replay buffer of `locations`.
    """

    def __init__(self, engine: Engine, draft_model: Path, locations: Locations) -> None:
        self._wanted = False
        self._stepped = threading.Event()
        self._error = ""
        folders = ("", locations.data, locations.cache, locations.config)  # no head
        self._learner = Learner(
            (PROCESS, engine.target.fingerprint, engine.path, draft_model, *folders),
            locations.data / "paused",
            LearningConditions(
                0.0, lambda: not self._wanted, lambda: NewAnswers(MIN_NEW_ANSWERS), lambda: False
            ),
            self._notify,
            lambda: None,
        )
        self._learner.start()

    def work(self) -> None:
        """Resume training and wait for its next step.

        Raises:
            ModelError: there was none within `START_TIMEOUT_S`.
        """
        self._stepped.clear()
        self._wanted = True
        if not self._stepped.wait(START_TIMEOUT_S):
            reason = self._error or "it ended, is on battery, or other programs need the processor"
            raise ModelError(f"no training is running: {reason}")

    def touch(self) -> float:
        """Act like a key press; returns the seconds until the process was stopped."""
        started = perf_counter()
        self._wanted = False
        self._learner.touch()
        return perf_counter() - started

    def close(self) -> None:
        """End the process."""
        self._learner.close()

    def _notify(self, progress: LearningNews, error: SpecchatError | None) -> None:
        if error is not None:
            self._error = str(error)
        if isinstance(progress, LearningProgress):
            self._stepped.set()


def fill(locations: Locations, engine: Engine, answers: Sequence[StreamedAnswer]) -> None:
    """Store `answers` to learn from, repeated under other keys to as many as a round takes."""
    path = replay_path(locations, engine.target.fingerprint)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(
        ReplayBuffer.open(path, engine.target.fingerprint, engine.target.vocabulary_size)
    ) as buffer:
        for number in range(MAX_NEW):
            key, record = question_key(str(number)), answers[number % len(answers)].record
            buffer.add(f"chat:{number}", replace(record, question=key, topic=key))


def own_copy(draft_model: Path, folder: Path) -> Path:
    """A copy of the draft model; the embedded one's training would begin with its known answers."""
    return Path(shutil.copy(draft_model, folder / draft_model.name))


def first_tokens(
    engine: Engine, questions: Sequence[str], sampling: Sampling, training: Training
) -> Iterator[FirstToken]:
    """Ask each question both ways, in alternating order.

    Raises:
        ModelError: training ended before the questions did.
    """
    for number, question in enumerate(questions):
        seconds, pause = {True: 0.0, False: 0.0}, 0.0
        for works in (True, False) if number % 2 else (False, True):
            if works:
                training.work()
            sleep(BEFORE_S)
            started = perf_counter()
            paused = training.touch()
            pause = paused if works else pause
            _ask(engine, question, sampling)
            seconds[works] = perf_counter() - started
        yield FirstToken(seconds[False], seconds[True], pause)


def _ask(engine: Engine, question: str, sampling: Sampling) -> None:
    """Read the whole prompt and draw one token."""
    with engine.busy:
        engine.target.rewind(0)
    request = GenerationRequest([Message("user", question)], sampling, AnswerEnd(1))
    with closing(generate(engine, request, Statistics(), Flag())) as answer:
        next(event for event in answer if isinstance(event, Wrote))
