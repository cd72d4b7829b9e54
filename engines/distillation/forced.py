"""A target's probabilities over a given answer, as a record to learn from.

For answers whose probabilities were not kept while they were written. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from engines.draft_tree import chain, root_only
from engines.target import Floats, Target


@dataclass(frozen=True, slots=True)
class ForcedAnswer:
    """An answer and its logits, float32 [answer, vocabulary]: row i gave token i."""

    prompt: Sequence[int]
    answer: Sequence[int]
    logits: Floats

    def record(self, chat: int, question: str, topic: str) -> ReplayRecord:
        """With the probabilities at every position.

        Args:
            question, topic: texts; the topic is the first question of the chat.
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
        )


def force(target: Target, prompt: Sequence[int], answer: Sequence[int]) -> ForcedAnswer:
    """Read a given answer with `target`, many tokens at a time."""
    for _ in target.prefill(prompt):
        pass
    rows = [target.last_row.logits.copy()]
    given, size = list(answer[:-1]), target.max_rows
    for first in range(0, len(given), size):
        part = given[first : first + size]
        rows.append(target.verify(chain(part[0], part[1:], 1)).logits.copy())
        target.commit(range(len(part)))
    return ForcedAnswer(prompt, answer, np.concatenate(rows))


def answer_greedily(
    target: Target, prompt: Sequence[int], stops: frozenset[int], limit: int
) -> ForcedAnswer:
    """The target's greedy answer, of at most `limit` tokens."""
    for _ in target.prefill(prompt):
        pass
    rows = [target.last_row.logits[0].copy()]
    answer = [int(rows[0].argmax())]
    while answer[-1] not in stops and len(answer) < limit:
        rows.append(target.verify(root_only(answer[-1])).logits[0].copy())
        target.commit([0])
        answer.append(int(rows[-1].argmax()))
    return ForcedAnswer(prompt, answer, np.array(rows))
