"""A model whose states tell what a test wants, in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from app.engine.answerability import BEGINNING, END
from datastores.errors import ModelError
from engines.answerability import AnswerabilityClassifier
from engines.target import Floats, Stop, StoppedError, require_ends_fit
from tests.app.scripted import ScriptedVocabulary
from tests.engines.scripted import WIDTH

LAYER = 5
"""The layer whose states `classifier` tells apart."""


def classifier(auc: float = 0.9, layer: int = LAYER) -> AnswerabilityClassifier:
    """Says what `ScriptedModel.tells` says."""
    weights = np.eye(1, WIDTH, dtype=np.float32)[0]
    return AnswerabilityClassifier(layer, weights, 0.0, 0.0, auc)


def unexpected(error: ModelError) -> None:
    """An `on_error` where nothing prevents the check."""
    raise AssertionError(error)


def as_read(passage: str, question: str) -> str:
    """What the model reads to check `passage`, in `letters`."""
    vocabulary = ScriptedVocabulary()
    begin = "".join(map(vocabulary.text, vocabulary.prompt_prefix))
    return begin + letters(f"{BEGINNING}{passage}\n{END.format(question=question)}")


def letters(text: str) -> str:
    """How the scripted vocabulary reads `text`."""
    vocabulary = ScriptedVocabulary()
    return "".join(map(vocabulary.text, vocabulary.encode(text)))


class ScriptedModel:
    """Implements `app.engine.answerability.ReadableModel`.

    Attributes:
        tells: whether the state after such a text, in `letters`, says yes.
        problem: why its layers cannot be read; empty if they can.
        texts: what was read, in `letters`.
        opened: the layers that were asked for.
        max_tokens: of a text.
    """

    layers = 8
    norm_digest = "scripted"
    vocabulary = ScriptedVocabulary()

    def __init__(self, tells: Callable[[str], bool] = lambda text: True) -> None:
        self.tells = tells
        self.problem = ""
        self.texts = list[str]()
        self.opened = list[tuple[int, ...]]()
        self.max_tokens = 4096

    def layer_states(self, layers: Sequence[int]) -> ScriptedStates:
        """Reads its states."""
        self.opened.append(tuple(layers))
        if self.problem:
            raise ModelError(self.problem)
        return ScriptedStates(self, layers)


class ScriptedStates:
    """Implements `engines.target.LayerStates`: what the model tells is in the first component of
    the states after layer `LAYER`, and noise that depends on the text is in all others."""

    width = WIDTH

    def __init__(self, model: ScriptedModel, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.max_tokens = model.max_tokens
        self._model = model

    def read(
        self, beginning: Sequence[int], ends: Sequence[Sequence[int]], stop: Stop = lambda: False
    ) -> Floats:
        """See `LayerStates.read`."""
        require_ends_fit(self, beginning, ends)
        return np.array([self._states([*beginning, *end], stop) for end in ends])

    def _states(self, tokens: Sequence[int], stop: Stop) -> Floats:
        if stop():
            raise StoppedError
        text = "".join(map(self._model.vocabulary.text, tokens))
        self._model.texts.append(text)
        noise = np.random.default_rng(tokens).standard_normal((len(self.layers), self.width))
        states: Floats = noise.astype(np.float32)
        says = 1.0 if self._model.tells(text) else -1.0
        if stop():
            raise StoppedError
        if LAYER in self.layers:
            states[self.layers.index(LAYER), 0] = says
        return states
