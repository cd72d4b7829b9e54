"""A target's probabilities and states over a given answer, as a record to learn from.

For answers whose probabilities and states were not recorded. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from datastores.replay_buffer.states import encode
from engines.draft_tree import chain, root_only
from engines.target import Floats, Target


@dataclass(frozen=True, slots=True)
class ForcedAnswer:
    """An answer with its logits and states; row i produced token i.

    Attributes:
        logits: float32 [answer, vocabulary].
        hidden: float32 [answer, width].
    """

    prompt: Sequence[int]
    answer: Sequence[int]
    logits: Floats
    hidden: Floats

    def record(self, chat: int, question: str, topic: str) -> ReplayRecord:
        """A record with the probabilities and the state at every position.

        Args:
            topic: the first question of the chat.
        """
        tokens = np.array([*self.prompt, *self.answer], dtype=np.int32)
        top, logprobs, rest = top_of(self.logits)
        return ReplayRecord(
            id=0,
            chat=chat,
            created=0.0,
            question=question_key(question),
            topic=question_key(topic),
            tokens=tokens,
            prompt_length=len(self.prompt),
            positions=np.arange(len(self.prompt), len(tokens), dtype=np.int32),
            top_tokens=top,
            top_logprobs=logprobs,
            rest_logprob=rest,
            states=encode(self.hidden),
        )


def force(target: Target, prompt: Sequence[int], answer: Sequence[int]) -> ForcedAnswer:
    """Evaluate a given answer with `target`, many tokens at a time."""
    for _ in target.prefill(prompt):
        pass
    logits, hidden = [target.last_row.logits.copy()], [target.last_row.hidden.copy()]
    given, size = list(answer[:-1]), target.max_rows
    for first in range(0, len(given), size):
        part = given[first : first + size]
        rows = target.verify(chain(part[0], part[1:], 1))
        logits.append(rows.logits.copy())
        hidden.append(rows.hidden.copy())
        target.commit(range(len(part)))
    return ForcedAnswer(prompt, answer, np.concatenate(logits), np.concatenate(hidden))


def answer_greedily(
    target: Target, prompt: Sequence[int], stops: frozenset[int], limit: int
) -> ForcedAnswer:
    """Generate the target's greedy answer of at most `limit` tokens."""
    for _ in target.prefill(prompt):
        pass
    logits, hidden = [target.last_row.logits[0].copy()], [target.last_row.hidden[0].copy()]
    answer = [int(logits[0].argmax())]
    while answer[-1] not in stops and len(answer) < limit:
        rows = target.verify(root_only(answer[-1]))
        logits.append(rows.logits[0].copy())
        hidden.append(rows.hidden[0].copy())
        target.commit([0])
        answer.append(int(logits[-1].argmax()))
    return ForcedAnswer(prompt, answer, np.array(logits), np.array(hidden))
