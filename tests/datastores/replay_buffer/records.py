"""Records that a target could have given."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from datastores.replay_buffer.states import encode
from datastores.replay_buffer.store import MAX_BYTES, ReplayBuffer

VOCABULARY, WIDTH = 300, 16


def record(seed: int = 0, *, length: int = 40, rows: int = 12, chat: int = 1) -> ReplayRecord:
    """A sound record that differs for each seed."""
    random = np.random.default_rng(seed)
    prompt = length // 4
    logits = random.normal(0.0, 4.0, (rows, VOCABULARY)).astype(np.float32)
    top_tokens, top_logprobs, rest = top_of(logits)
    positions = np.sort(random.choice(np.arange(prompt, length), rows, replace=False))
    tokens = random.integers(0, VOCABULARY, length).astype(np.int32)
    tokens[positions] = top_tokens[:, 0]
    key = question_key(f"question {seed}")
    return ReplayRecord(
        id=0,
        chat=chat,
        created=1.7e9 + seed,
        question=key,
        topic=key,
        tokens=tokens,
        prompt_length=prompt,
        positions=positions.astype(np.int32),
        top_tokens=top_tokens,
        top_logprobs=top_logprobs,
        rest_logprob=rest,
        states=encode(random.normal(0.0, 2.0, (length - prompt, WIDTH)).astype(np.float32)),
    )


def open_buffer(path: Path, max_bytes: int = MAX_BYTES) -> ReplayBuffer:
    return ReplayBuffer.open(path, "target", VOCABULARY, max_bytes)
