"""Continuing a stopped answer: which of its tokens are kept, and how both parts become one.

A continued answer keeps the settings it began with. As the sampling noise is keyed by the offset in
the answer and the prompt is the same, its text is that of an answer that was never stopped.
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
    """The beginning of an answer: its tokens, their text, and the figures stored with it."""

    tokens: tuple[int, ...] = ()
    pieces: tuple[Piece, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(piece.text for piece in self.pieces)

    def sampling(self, default: Sampling) -> Sampling:
        """The settings it began with; `default` if none are stored.

        Raises:
            InputError: the stored settings are invalid.
        """
        stored = self.figures.get(SAMPLING_KEY)
        return with_overrides(default, stored if isinstance(stored, dict) else {}, "this answer")

    def with_citations(self, figures: dict[str, object]) -> dict[str, object]:
        """`figures` of the whole answer, with the citations of its beginning."""
        begun, added = self.figures.get(CITATIONS_KEY), figures.get(CITATIONS_KEY)
        if not isinstance(begun, list):
            return figures
        new = [cited for cited in added if cited not in begun] if isinstance(added, list) else []
        return {**figures, CITATIONS_KEY: [*begun, *new]}


NOTHING_WRITTEN = PartialAnswer()


def partial_answer(
    answer: StoredMessage, engine: Engine, stride: int = 1, sequences: Sequence[str] = ()
) -> PartialAnswer:
    """The part of `answer` that `engine` continues: a multiple of `stride` tokens.

    Args:
        sequences: stop sequences; if one may begin at the end, that text is held back.

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
    """`text`, attributed like the `stored` text, from which its end may differ: an incomplete
    character is replaced in the stored text, but not in the tokens."""
    pairs = enumerate(zip(stored, text, strict=False))
    left = next((at for at, (one, other) in pairs if one != other), min(len(stored), len(text)))
    known: Sequence[Piece] = attributed_pieces(stored, runs) if isinstance(runs, list) else ()
    pieces = []
    for piece in known or (Piece(stored, 0),):
        pieces.append(Piece(piece.text[:left], piece.origin))
        left -= len(pieces[-1].text)
    pieces.append(Piece(text[sum(len(piece.text) for piece in pieces) :], 0))
    return tuple(piece for piece in pieces if piece.text)
