"""The engine: a loaded model with its drafters and budget; `app.engine.loading` assembles it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import randbits
from threading import Lock
from typing import Any, TypeVar

from app.chat_settings import MAX_TOKENS, NEW_SEED, AnswerEnd, answer_end, with_overrides
from app.config import CrestConfig
from app.engine.answerability import Answerability
from app.engine.chat_states import ChatStates
from app.engine.draft_model import VersionedDraftModel
from app.engine.draft_resources import DraftResources, HasError
from app.engine.head import VersionedHead
from app.engine.learned_state import LearnedState
from datastores.errors import SpecchatError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.protocol import Budget
from engines.chat_template.prompt_builder import Tool
from engines.drafters.protocol import Drafter
from engines.sampler import Constrain, Sampling
from engines.state_encoding import PASS_S
from engines.step import StepObserver
from engines.target import Target, Vocabulary

T = TypeVar("T")

MAX_PASSAGES = 4
"""Most passages before a question."""


@dataclass(frozen=True, slots=True)
class PassageForm:
    """How a model is given passages of imported texts.

    Attributes:
        max_passages: most passages before a question.
        max_items: most list items in those passages; 0 for all.
        instructed: whether the model follows instructions about them. It then gets every passage
            that may answer, and is told to say so if they do not; another one gets only what fits
            the question, in the form of its training.
    """

    max_passages: int = MAX_PASSAGES
    max_items: int = 0
    instructed: bool = True


@dataclass(frozen=True, slots=True)
class AnswerDefaults:
    """How answers are drawn and where they end, unless a chat has settings of its own.

    Attributes:
        sampling: its seed is 0 or more.
        seeded: whether the user fixed the seed.
        limited: whether `max_tokens` is from the command line, and overrides the chats' settings.
        default_temperature: whether the temperature is our default, not the user's choice.
    """

    sampling: Sampling
    seeded: bool
    max_tokens: int
    limited: bool = False
    default_temperature: bool = False

    def draw(self, chosen: Mapping[str, Any], where: str, *, again: bool = False) -> Sampling:
        """The sampling settings with those `chosen`; without a fixed seed, a new one each time.

        Args:
            where: what the settings belong to, for errors.
            again: for another answer to a question: it is sampled unless the user chose
                temperature 0, at which it would be the same.

        Raises:
            InputError: a setting is unknown or invalid.
        """
        sampling = with_overrides(self.sampling, chosen, where)
        if again and self.default_temperature and "temperature" not in chosen:
            sampling = replace(sampling, temperature=Sampling().temperature)
        seed = chosen.get("seed", sampling.seed if self.seeded else NEW_SEED)
        return replace(sampling, seed=randbits(32) if seed == NEW_SEED else seed)

    def end(self, chosen: Mapping[str, Any], stop: Sequence[str], where: str) -> AnswerEnd:
        """Where answers end with the settings `chosen`, or before one of `stop`; a length from the
        command line takes precedence.

        Raises:
            InputError: a setting is invalid.
        """
        if self.limited:
            chosen = {name: value for name, value in chosen.items() if name != MAX_TOKENS}
        return answer_end(chosen, AnswerEnd(self.max_tokens, tuple(stop)), where)


Render = Callable[..., list[int]]
"""(messages, and tools that the model may call) → token ids; see `ChatTemplate.render`."""


@dataclass(slots=True)
class Engine:
    """Everything an answer needs.

    Attributes:
        name: the model's name in `specchat models`.
        path: the model's file or folder.
        render: makes a prompt's token ids from messages, with stored ids of earlier answers.
        render_text: makes them from a whole prompt as text, in which control tokens are recognised.
        json_form: makes what restricts answers to the JSON of a schema; None if the engine cannot.
        call_form: likewise to a call of some tools, of which those named are strict, or to many;
            or such calls within free text.
        passage_form: how it is given passages of imported texts.
        answerability: checks whether they state the answer; None if nothing does.
        trained_context: longest context that the model allows; 0 if unknown.
        crest_bytes: disk space CREST may take.
        busy: the lock on `target`, whose KV cache serves one caller at a time: `generate` holds it
            for a whole answer, idle encoding and `exclusively` for each pass, a benchmark around
            its own passes. Every call of the target needs it; tokenizing with `vocabulary` does
            not.
        stop: texts at which an answer ends if the model has no token for that.
        restrictions: a sentence for each thing that does not work with this model.
        learns: whether answers are recorded to train the draft model and head.
        states: saved KV caches of chats, if the target can save them.
        observers: get every step after the drafters and the budget, on the decoding thread.
    """

    name: str
    path: Path
    target: Target
    vocabulary: Vocabulary
    render: Render
    drafters: list[Drafter]
    budget: Budget
    costs: CostModel
    calibration: AcceptanceModel
    backoffs: DrafterBackoffs
    defaults: AnswerDefaults
    learned: LearnedState
    render_text: Callable[[str], list[int]]
    json_form: Callable[[Mapping[str, Any]], Constrain] | None = None
    call_form: Callable[[Sequence[Tool], Collection[str], bool, bool], Constrain] | None = None
    stop: tuple[str, ...] = ()
    restrictions: tuple[str, ...] = ()
    passage_form: PassageForm = PassageForm()
    answerability: Answerability | None = None
    trained_context: int = 0
    crest_bytes: int = CrestConfig().max_bytes
    resources: DraftResources = field(default_factory=DraftResources)
    busy: Lock = field(default_factory=Lock)
    observers: list[StepObserver] = field(default_factory=list)
    states: ChatStates | None = None
    versioned_draft_model: VersionedDraftModel | None = None
    versioned_head: VersionedHead | None = None
    learns: bool = False

    @property
    def errors(self) -> list[SpecchatError]:
        """Errors of stores that were damaged when opened, or failed since."""
        failing = [drafter.error for drafter in self.drafters if isinstance(drafter, HasError)]
        replay = self.resources.replay
        recording = replay.error if replay is not None else None
        saving = self.states.error if self.states is not None else None
        found = (self.learned.error, *self.resources.errors, *failing, recording, saving)
        return [error for error in found if error is not None]

    @property
    def remembered(self) -> int | None:
        """States in the dense index that can be drafted from; None if there is no index."""
        return len(self.resources.dense.memory) if self.resources.dense is not None else None

    @property
    def draft_model_name(self) -> str:
        """Name of the draft model; empty where none is loaded."""
        versioned = self.versioned_draft_model if self.resources.draft_model is not None else None
        return versioned.name if versioned is not None else ""

    def exclusively(self, slices: Iterator[T]) -> Generator[T | None]:
        """Yield from `slices`, holding the lock only while each one is computed.

        Yields None every `PASS_S` seconds while another thread holds the lock.
        """
        while True:
            if not self.busy.acquire(timeout=PASS_S):
                yield None
                continue
            try:
                done = next(slices)
            except StopIteration:
                return
            finally:
                self.busy.release()
            yield done

    def save_learned(self) -> None:
        """Save what was learned for the next session.

        Raises:
            StoreError: it cannot be written.
        """
        self.learned.save(self.costs, self.calibration, self.backoffs)

    def close(self) -> None:
        """Save what was learned for the next session, and close the resources.

        Raises:
            StoreError: it cannot be written.
        """
        with ExitStack() as steps:
            steps.callback(self.resources.close)
            steps.callback(self.save_learned)
            if self.states is not None:
                steps.callback(self.states.close)
