"""Continuing a stopped answer: which of its tokens are kept, and how both parts become one.

Owns which answers can be continued, that they keep the settings they began with, and that the
figures and origins of both parts are those of one answer. The noise of sampling is keyed by the
offset in the answer and the prompt is the same, so the text is that of an answer that was never
stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.chat_settings import with_overrides
from app.conversation.citations import CITATIONS_KEY
from app.conversation.generation import TextStream
from app.conversation.statistics import ORIGINS_KEY, Piece, attributed_pieces
from app.engine.engine import Engine
from datastores.chats.records import StoredMessage
from datastores.errors import InputError
from engines.chat_template.reasoning import added_opening
from engines.sampler import Sampling

SAMPLING_KEY = "sampling"
"""The key of the sampling settings among an answer's stored figures."""

OTHER_MODEL = "another model wrote this answer: switch back to it, or regenerate"
NO_TOKENS = "this answer was stored without its tokens: regenerate it"


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """What is written of an answer.

    Attributes:
        tokens: of the answer so far.
        pieces: their text.
        figures: stored with it.
    """

    tokens: tuple[int, ...] = ()
    pieces: tuple[Piece, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What is written."""
        return "".join(piece.text for piece in self.pieces)

    def sampling(self, default: Sampling) -> Sampling:
        """The settings it began with; `default` for one that was stored without them.

        Raises:
            InputError: what is stored is invalid.
        """
        stored = self.figures.get(SAMPLING_KEY)
        return with_overrides(default, stored if isinstance(stored, dict) else {}, "this answer")

    def with_citations(self, figures: dict[str, object]) -> dict[str, object]:
        """`figures` of the whole answer, with the passages that its beginning was given."""
        begun, added = self.figures.get(CITATIONS_KEY), figures.get(CITATIONS_KEY)
        if not isinstance(begun, list):
            return figures
        new = [one for one in added if one not in begun] if isinstance(added, list) else []
        return {**figures, CITATIONS_KEY: [*begun, *new]}


NOTHING_WRITTEN = PartialAnswer()
"""What every other answer goes on from."""


def partial_answer(
    answer: StoredMessage, engine: Engine, stride: int = 1, sequences: Sequence[str] = ()
) -> PartialAnswer:
    """What `engine` goes on from: the first tokens of `answer`, a multiple of `stride`.

    Args:
        sequences: texts that end it; the beginning of one at its end is not shown yet.

    Raises:
        InputError: another model wrote it, or its tokens are not known.
    """
    if answer.model != engine.target.fingerprint:
        raise InputError(OTHER_MODEL)
    if answer.content and not answer.tokens:
        raise InputError(NO_TOKENS)
    tokens = answer.tokens[: len(answer.tokens) // stride * stride]
    runs = answer.statistics.get(ORIGINS_KEY)
    text = TextStream(engine, tokens, sequences).begun
    text = added_opening(answer.content, text) + text
    pieces = _pieces(answer.content, runs, text)
    return PartialAnswer(tokens, pieces, answer.statistics)


def _pieces(stored: str, runs: object, text: str) -> tuple[Piece, ...]:
    """`text`, attributed as the `stored` text is, from which its end may differ.

    A character that was incomplete is replaced in the stored text; the tokens still have it.
    """
    pairs = enumerate(zip(stored, text, strict=False))
    left = next((at for at, (one, other) in pairs if one != other), min(len(stored), len(text)))
    known: Sequence[Piece] = attributed_pieces(stored, runs) if isinstance(runs, list) else ()
    pieces = []
    for piece in known or (Piece(stored, 0),):
        pieces.append(Piece(piece.text[:left], piece.origin))
        left -= len(pieces[-1].text)
    pieces.append(Piece(text[sum(len(piece.text) for piece in pieces) :], 0))
    return tuple(piece for piece in pieces if piece.text)
