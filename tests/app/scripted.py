"""An engine over the scripted target: the whole turn in milliseconds, without llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.engine.drafters import make_drafters
from app.engine.engine import AnswerDefaults, Engine
from app.engine.learned_state import LearnedState
from app.engine.loading import make_budget
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import DrafterBackoffs
from engines.chat_template.prompt_builder import Message, Tool
from engines.sampler import Sampling
from engines.step import Context, Step
from tests.engines.scripted import VOCABULARY, ScriptedTarget

STOP, BEGIN = 0, 61


class ScriptedVocabulary:
    """One printable letter for each token; token 63 is half a character, token 0 ends an answer.

    Prompts begin with token 61."""

    fingerprint = "scripted-letters"
    size = VOCABULARY
    stops = frozenset({STOP})
    prompt_prefix = (BEGIN,)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """A token for each letter."""
        return [1 + ord(letter) % (VOCABULARY - 2) for letter in text]

    def text(self, token: int) -> str:
        """The letter of a token."""
        return self.piece(token).decode("latin-1")

    def piece(self, token: int) -> bytes:
        """The letter of a token."""
        if token == STOP:
            return b""
        return b"\xc3" if token == VOCABULARY - 1 else bytes([64 + token])


def render(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
    """The tokens of all messages, each after a marker of its role."""
    vocabulary = ScriptedVocabulary()
    tokens: list[int] = []
    for message in messages:
        tokens.append(1 + len(message.role) % 7)
        tokens.extend(message.tokens or vocabulary.encode(message.content))
    return [*tokens, 9]


class Recorder:
    """An observer that records what it sees.

    Attributes:
        contexts: contexts of the answers begun.
        steps: steps of all answers.
    """

    def __init__(self) -> None:
        self.contexts: list[Context] = []
        self.steps: list[Step] = []

    def begin(self, context: Context) -> None:
        """A new answer starts."""
        self.contexts.append(context)

    def observe(self, step: Step) -> None:
        """Record the step, whose tokens the context must hold already."""
        assert tuple(self.contexts[-1].tokens[step.position :]) == step.tokens
        self.steps.append(step)


def scripted_engine(
    folder: Path,
    *,
    drafters: Sequence[str] = ("prompt", "recycle"),
    draft_tokens: int | None = None,
    context_length: int = 512,
    max_tokens: int = 60,
    sampling: Sampling | None = None,
) -> Engine:
    """A ready engine that stores what it learns in `folder`."""
    costs, calibration, backoffs = CostModel(), AcceptanceModel(), DrafterBackoffs()
    return Engine(
        name="scripted",
        path=folder / "scripted.gguf",
        target=ScriptedTarget(context_length=context_length),
        vocabulary=ScriptedVocabulary(),
        render=render,
        render_text=ScriptedVocabulary().encode,
        drafters=make_drafters(drafters),
        budget=make_budget(draft_tokens, costs, calibration, backoffs),
        costs=costs,
        calibration=calibration,
        backoffs=backoffs,
        defaults=AnswerDefaults(
            sampling or Sampling(temperature=0.8, seed=3), seeded=True, max_tokens=max_tokens
        ),
        learned=LearnedState(folder / "costs.json", "scripted"),
    )


def drafted(engine: Engine) -> int:
    """All tokens that the engine's drafters propose after any single token."""
    state = np.zeros(engine.target.width, np.float32)
    contexts = [Context([token], state, 0.0) for token in range(engine.target.vocabulary_size)]
    return sum(
        drafter.propose(context, 8).drafted for drafter in engine.drafters for context in contexts
    )
