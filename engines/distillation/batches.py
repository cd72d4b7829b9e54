"""Records of the replay buffer as batches, and the draft model's logits on them.

Where the target's probabilities were stored, p is known over its most probable tokens. At the other
positions of an answer only the emitted token is known, and p is taken to be 1 for it (which is true
of greedy answers). So every position of every answer counts: learning from the misses alone would
teach the draft model that all its proposals are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.losses import MIN_LOG, normalised
from engines.distillation.model import Llama

BATCH_TOKENS = 256
"""Tokens of a batch, padding included: some 4 answers to short questions. In the same time, four
times as many steps gain more than steps of four times as many tokens."""
ROW_ELEMENTS = 2**22
"""Logits in memory at a time: 16 MiB for any vocabulary."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Some records, padded to one length, which causal attention makes harmless.

    Attributes:
        ids: int64 (records, length).
        rows: int64 (n,), flat indexes into `ids` of the tokens before each known distribution.
        tokens: int64 (n, k), the tokens of each known distribution.
        log_p: float32 (n, k + 1), their log-probabilities, and that of all other tokens last.
        plain_rows: int64 (m,), as `rows`, where only the token that followed is known.
        plain_tokens: int64 (m, 1), these tokens.
    """

    ids: Tensor
    rows: Tensor
    tokens: Tensor
    log_p: Tensor
    plain_rows: Tensor
    plain_tokens: Tensor


def make_batch(records: Sequence[ReplayRecord]) -> RecordBatch:
    """Combine records into one batch."""
    length = max(len(record.tokens) for record in records)
    ids = np.zeros((len(records), length), dtype=np.int64)
    rows, plain, followers = [], [], []
    for number, record in enumerate(records):
        count = len(record.tokens)
        ids[number, :count] = record.tokens
        others = np.setdiff1d(np.arange(record.prompt_length, count), record.positions)
        rows.append(number * length + record.positions.astype(np.int64) - 1)
        plain.append(number * length + others - 1)
        followers.append(record.tokens[others].astype(np.int64))
    tokens = np.concatenate([record.top_tokens for record in records]).astype(np.int64)
    top = np.concatenate([record.top_logprobs for record in records]).astype(np.float32)
    rest = np.concatenate([record.rest_logprob for record in records]).astype(np.float32)
    return RecordBatch(
        torch.from_numpy(ids),
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(tokens),
        normalised(torch.from_numpy(top), torch.from_numpy(rest)),
        torch.from_numpy(np.concatenate(plain)),
        torch.from_numpy(np.concatenate(followers)).unsqueeze(1),
    )


def pieces(
    model: Llama, hidden: Tensor, batch: RecordBatch
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The draft model's logits (n, vocabulary) at every position, in pieces of bounded memory, with
    the tokens (n, k) whose probabilities are known, best first, and their log p (n, k + 1).

    Args:
        hidden: the final states of `batch.ids`, (records * length, width).
    """
    size = max(1, ROW_ELEMENTS // model.shape.vocabulary)
    sure = torch.tensor([[0.0, MIN_LOG]]).expand(len(batch.plain_rows), -1)
    for rows, tokens, log_p in (
        (batch.rows, batch.tokens, batch.log_p),
        (batch.plain_rows, batch.plain_tokens, sure),
    ):
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            yield model.logits(hidden[rows[part]]), tokens[part], log_p[part]


def in_batches(
    records: Sequence[ReplayRecord], rng: Random, most: int = BATCH_TOKENS
) -> list[list[ReplayRecord]]:
    """`records` in random batches of similar lengths, so that there is little padding."""
    shuffled = sorted(records, key=lambda record: len(record.tokens) * rng.uniform(0.8, 1.25))
    groups: list[list[ReplayRecord]] = [[]]
    longest = 0
    for record in shuffled:
        longest = max(longest, len(record.tokens))
        if groups[-1] and (len(groups[-1]) + 1) * longest > most:
            groups.append([])
            longest = len(record.tokens)
        groups[-1].append(record)
    rng.shuffle(groups)
    return [group for group in groups if group]
