"""Stop sequences: texts at which an answer ends, cut off exactly, wherever tokens begin and end.

`StopSequences` tells the decode loop when one is complete, so that nothing is accepted after it.
`HeldText` holds back text that may become one, so that none of it is shown or stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.conversation.statistics import Piece
from engines.chat_template.reasoning import added_opening

Bytes = Callable[[int], bytes]
"""The bytes of a token."""


class StopSequences:
    """Finds the sequences in tokens; it keeps no state, as steps may be rolled back."""

    def __init__(self, sequences: Sequence[str], piece: Bytes) -> None:
        self._sequences = [sequence.encode() for sequence in sequences]
        self._longest = max(map(len, self._sequences), default=0)
        self._piece = piece

    def end_with(self, tokens: Sequence[int], start: int) -> bool:
        """Whether the last of `tokens` completes a sequence that begins at or after `start`."""
        last, before, at = self._piece(tokens[-1]), b"", len(tokens) - 1
        while at > start and len(before) < self._longest - 1:
            at -= 1
            before = self._piece(tokens[at]) + before
        text = before + last
        return bool(last) and any(
            text.find(sequence, max(0, len(before) - len(sequence) + 1)) >= 0
            for sequence in self._sequences
        )


class HeldText:
    """Text whose end is held back while it may begin a stop sequence.

    Attributes:
        ended: whether a sequence was found; it and what follows are dropped.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.ended = False
        self._sequences = sequences
        self._held: list[Piece] = []

    @property
    def holds(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def begin(self, text: str) -> str:
        """Continue after `text`; returns the part that can be shown."""
        shown, self._held = _split([Piece(text, 0)], len(text) - self._possible(text))
        return "".join(piece.text for piece in shown)

    def release(self, piece: Piece, *, last: bool = False) -> list[Piece]:
        """The text that can be shown after `piece`; nothing is held back if it is the `last`."""
        if self.ended:
            return []
        self._held.append(piece)
        text = "".join(held.text for held in self._held)
        found = [at for sequence in self._sequences if (at := text.find(sequence)) >= 0]
        self.ended = bool(found)
        if found:
            released, _ = _split(self._held, min(found))
            self._held = []
            return released
        kept = 0 if last else self._possible(text)
        released, self._held = _split(self._held, len(text) - kept)
        return released

    def _possible(self, text: str) -> int:
        """The length of the longest end of `text` that may begin a sequence."""
        return max((_begun(text, sequence) for sequence in self._sequences), default=0)


def tokens_of(text: str, tokens: Sequence[int], piece: Bytes) -> tuple[int, ...]:
    """The first of `tokens`, up to the end of `text`; none if that is within a token.

    `text` may begin with a reasoning mark that belongs to the prompt.
    """
    written = b"".join(map(piece, tokens)).decode("utf-8", "replace")
    wanted, length = text.removeprefix(added_opening(text, written)).encode(), 0
    for count, token in enumerate(tokens, 1):
        raw = piece(token)
        if wanted[length : length + len(raw)] != raw:
            return ()
        length += len(raw)
        if length == len(wanted):
            return tuple(tokens[:count])
    return ()


def _begun(text: str, sequence: str) -> int:
    """The length of the longest end of `text` that `sequence` begins with."""
    longest = min(len(text), len(sequence) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(sequence[:n])), 0)


def _split(pieces: Sequence[Piece], at: int) -> tuple[list[Piece], list[Piece]]:
    """`pieces` before and after the first `at` characters; none of them is empty."""
    before, after = list[Piece](), list[Piece]()
    for piece in pieces:
        before.append(Piece(piece.text[: max(0, at)], piece.origin))
        after.append(Piece(piece.text[max(0, at) :], piece.origin))
        at -= len(piece.text)
    return [piece for piece in before if piece.text], [piece for piece in after if piece.text]
