"""Log-probabilities of an answer's tokens, in the model's own distribution.

They are those before temperature and the other sampling settings, as in OpenAI's API.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.conversation.events import Event, Wrote
from engines.sampler import best
from engines.step import Step
from engines.target import Floats, Vocabulary

_NO_LOGITS = np.empty((0, 0), np.float32)
LEAST = -9999.0
"""OpenAI's figure for a token without any probability; JSON has no infinity."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability.

    Attributes:
        raw: its bytes.
        offset: index of its first byte in the answer.
        top: the most probable tokens at its place.
    """

    raw: bytes
    logprob: float
    offset: int = 0
    top: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """Its text; part of a character becomes U+FFFD."""
        return self.raw.decode("utf-8", "replace")

    def for_chat(self) -> dict[str, Any]:
        """In the form of chat completions."""
        return {**self._alone(), "top_logprobs": [one._alone() for one in self.top]}

    def _alone(self) -> dict[str, Any]:
        return {"token": self.text, "logprob": self.logprob, "bytes": list(self.raw)}


class TokenLogprobs:
    """Makes the log-probabilities of an answer whose steps have the logits of all tokens."""

    def __init__(self, vocabulary: Vocabulary, top: int) -> None:
        """`top` is the number of alternatives."""
        self._vocabulary = vocabulary
        self._top = top
        self._made: deque[TokenLogprob] = deque()
        self._waiting: deque[TokenLogprob] = deque()
        self._made_bytes = self._shown_bytes = 0

    def prepare(self, event: Event) -> Event:
        """`event` without its logits, of which a client that reads slowly would let gigabytes
        wait. On the model's thread."""
        if not isinstance(event, Wrote):
            return event
        for token, row in zip(event.step.tokens, event.step.kept_logits, strict=True):
            self._made.append(self._token(token, row))
        return replace(event, step=replace(event.step, kept=(), kept_logits=_NO_LOGITS))

    def take(self, step: Step, shown: str) -> Iterator[TokenLogprob]:
        """Add a prepared `step`, with which the text `shown` was released; yields the tokens of
        that text.

        Tokens of a stop sequence, and control tokens at the end, are never part of it.
        """
        self._waiting.extend(self._made.popleft() for _ in step.tokens)
        self._shown_bytes += len(shown.encode("utf-8", "replace"))
        while self._waiting and self._waiting[0].offset < self._shown_bytes:
            yield self._waiting.popleft()

    def _token(self, token: int, row: Floats) -> TokenLogprob:
        row = row.astype(np.float64)
        largest = row.max()
        logprobs = row - largest - np.log(np.exp(row - largest).sum())
        piece = self._vocabulary.piece
        top = best(row.astype(np.float32), self._top) if self._top else ()
        others = tuple(TokenLogprob(piece(int(one)), _finite(logprobs[one])) for one in top)
        made = TokenLogprob(piece(token), _finite(logprobs[token]), self._made_bytes, others)
        self._made_bytes += len(made.raw)
        return made


def _finite(logprob: float) -> float:
    return max(LEAST, float(logprob))
