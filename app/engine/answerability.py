"""Whether passages state the answer to a question, by the states of the model that answers.

Checking takes one pass over a passage and the question, in a context of its own, up to the layer
whose states tell most (`engines.answerability`). The classifier of these states ships with specchat
for the models in `assets/answerability`; for any other model it is learned while that is idle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from app.engine.asked_notes import AskedNote
from datastores.errors import ModelError
from engines.answerability import (
    AnswerabilityClassifier,
    candidate_layers,
    read_classifier,
)
from engines.target import Floats, LayerStates, Stop, Vocabulary

LOGGER = logging.getLogger("specchat.answerability")

FOLDER, SUFFIX = "answerability", ".npz"
BEGINNING = """\
Answer a question from an excerpt of somebody's notes. If it is about another thing or person, or \
does not say what is asked, answer: not stated.

Excerpt: """
END = """\
Question: {question}
Answer:"""
"""What the model reads before and after a passage; its state at the last token is classified."""

FORM = sha256((BEGINNING + END).encode()).hexdigest()[:8]
"""Identity of these texts, with which a classifier is learned."""


class ReadableModel(Protocol):
    """A loaded model of either engine."""

    @property
    def layers(self) -> int:
        """Transformer blocks."""

    @property
    def norm_digest(self) -> str:
        """Identity of its weights, whatever their precision."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def layer_states(self, layers: Sequence[int]) -> LayerStates:
        """Reads the states after some of its layers.

        Raises:
            ModelError: they cannot be read.
        """


@dataclass(frozen=True, slots=True)
class PassageCheck:
    """Checks passages with a classifier of the states after one layer."""

    classifier: AnswerabilityClassifier
    layer: LayerStates
    vocabulary: Vocabulary

    def log_odds(self, passage: str, question: str, stop: Stop) -> float:
        """Of `passage` stating the answer to `question`; at least `classifier.minimum` if it may.

        Raises:
            StoppedError: `stop` said so.
            ModelError: the model cannot evaluate them.
        """
        states = _read(self.layer, self.vocabulary, passage, [question], stop)
        return float(self.classifier.log_odds(states[:, 0])[0])


class Answerability:
    """The classifier of one model, and what is needed to learn it.

    Args:
        folder: of classifiers that were learned on this machine.
        on_error: gets what prevents the check, once.

    Attributes:
        usable: whether nothing has prevented it yet.
    """

    def __init__(
        self, model: ReadableModel, folder: Path, on_error: Callable[[ModelError], object]
    ) -> None:
        self.usable = True
        self._model = model
        self._folder = folder
        self._on_error = on_error
        self._check: PassageCheck | None = None

    @cached_property
    def path(self) -> Path:
        """The file of the classifier that is learned on this machine."""
        return self._folder / f"{self._model.norm_digest}-{FORM}{SUFFIX}"

    @property
    def classifier(self) -> AnswerabilityClassifier | None:
        """What is known of the model's states; None until that is learned, here or in another
        process. A damaged file counts for nothing, and is in the log."""
        shipped = Path(str(files("assets") / FOLDER / self.path.name))
        for path in filter(Path.exists, (self.path, shipped)):
            try:
                return read_classifier(path)
            except ModelError as error:
                LOGGER.warning("%s", error)
        return None

    @property
    def check(self) -> PassageCheck | None:
        """What checks passages; None if the model's states do not tell, or nothing was learned of
        them yet."""
        if self.usable and self._check is None:
            try:
                self._check = self._open()
            except ModelError as error:
                self.give_up(error)
        return self._check if self.usable else None

    def give_up(self, error: ModelError) -> None:
        """Report `error`, and check no more in this process."""
        self.usable = False
        self._on_error(ModelError(f"passages are used unchecked: {error}"))

    def open_layers(self) -> LayerStates:
        """What reads the layers to choose from.

        Raises:
            ModelError: they cannot be read.
        """
        return self._model.layer_states(candidate_layers(self._model.layers))

    def states(self, layers: LayerStates, note: AskedNote, stop: Stop) -> Floats:
        """The states after each question about `note`, those it answers first, float32
        [questions, layers, width].

        Raises:
            StoppedError: `stop` said so.
            ModelError: the model cannot evaluate them.
        """
        questions = [*note.answered, *note.unanswered]
        return _read(layers, self._model.vocabulary, note.excerpt, questions, stop)

    def _open(self) -> PassageCheck | None:
        classifier = self.classifier
        if classifier is None or not classifier.reliable:
            return None
        layer = self._model.layer_states([classifier.layer])
        if layer.width != len(classifier.weights):
            raise ModelError(f"{self.path.name} is of another model")
        return PassageCheck(classifier, layer, self._model.vocabulary)


def _read(
    layers: LayerStates, vocabulary: Vocabulary, passage: str, questions: Sequence[str], stop: Stop
) -> Floats:
    """The states after a passage and each of `questions`; of what does not fit, a passage's end and
    a question's beginning are left out."""
    longest = layers.max_tokens // 2
    ends = [vocabulary.encode(END.format(question=one))[-longest:] for one in questions]
    beginning = [*vocabulary.prompt_prefix, *vocabulary.encode(f"{BEGINNING}{passage}\n")]
    return layers.read(beginning[: layers.max_tokens - max(map(len, ends))], ends, stop)
