"""The engine: a loaded model with its drafters, its budget and what was learned about it.

`app.engine.loading` assembles it. It knows no chats, attached files and screens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from app.config import CrestConfig
from app.engine.chat_states import ChatStates
from app.engine.draft_model import (
    VersionedDraftModel,
)
from app.engine.draft_resources import DraftResources, HasError
from app.engine.head import VersionedHead
from app.engine.learned_state import LearnedState
from datastores.errors import SpecchatError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.protocol import Budget
from engines.chat_template.prompt_builder import Message
from engines.drafters.protocol import Drafter
from engines.sampler import Sampling
from engines.state_encoding import PASS_S
from engines.step import StepObserver
from engines.target import Target, Vocabulary

if TYPE_CHECKING:
    from engines.hf.model import HfModel
    from engines.llama.model import LlamaModel

    LoadedModel = LlamaModel | HfModel

T = TypeVar("T")

MAX_PASSAGES = 4
"""Of imported texts, put before a question."""


@dataclass(frozen=True, slots=True)
class AnswerDefaults:
    """How answers are drawn and where they end, unless a chat has settings of its own.

    Attributes:
        sampling: with a seed from 0 on.
        seeded: whether the user fixed the seed.
        max_tokens: of one answer.
        limited: whether the command line chose it, so that no chat's setting replaces it.
        default_temperature: whether the temperature is our default, not the user's choice.
    """

    sampling: Sampling
    seeded: bool
    max_tokens: int
    limited: bool = False
    default_temperature: bool = False


@dataclass(slots=True)
class Engine:
    """Everything an answer needs.

    Attributes:
        name: of the model, as `specchat models` lists it.
        path: its file or folder.
        render: messages → the prompt's token ids, stored ids of earlier answers spliced in.
        defaults: how answers are drawn and where they end, unless a chat says otherwise.
        max_passages: of imported texts, put before one question.
        max_items: list items of those passages, put before one question; 0 for all.
        trained_context: most tokens of context that the model allows; 0 if unknown.
        crest_bytes: disk space CREST may take.
        resources: what the drafters draft from.
        busy: the one lock on `target`, whose KV cache serves one caller at a time: `generate` holds
            it for a whole answer, idle encoding and `exclusively` for each pass, a benchmark around
            its own passes. Nobody calls the target without it; tokenizing needs only `vocabulary`,
            and no lock.
        versioned_draft_model: where the draft model comes from; None for none. versioned_head:
            likewise for the draft head.
        stop: texts at which an answer ends, where the model has no token for that.
        restrictions: what does not work with this model, a sentence each.
        learns: whether answers are recorded for them to learn from.
        states: saved states of chats, which are loaded instead of read; None for none.
        observers: see every step after the drafters and the budget, on the decoding thread.
    """

    name: str
    path: Path
    target: Target
    vocabulary: Vocabulary
    render: Callable[[Sequence[Message]], list[int]]
    drafters: list[Drafter]
    budget: Budget
    costs: CostModel
    calibration: AcceptanceModel
    backoffs: DrafterBackoffs
    defaults: AnswerDefaults
    learned: LearnedState
    stop: tuple[str, ...] = ()
    restrictions: tuple[str, ...] = ()
    max_passages: int = MAX_PASSAGES
    max_items: int = 0
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
        """What was damaged when it was opened, and which drafters' stores failed since."""
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
        """Yield from `slices`, holding the lock while each one is computed, but not between.

        Yields None, at most every `PASS_S` seconds, while somebody else holds the lock.
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
