"""A record of the replay buffer: one whole answer and the target's probabilities at some positions.

Every record is checked before it is stored and again when it is read: training data must be what a
target can have generated.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from datastores.replay_buffer.states import NO_STATES, AnswerStates

Integers = NDArray[np.int32]
Halves = NDArray[np.float16]

TOP = 64
"""Most probable tokens stored for a position; fewer if the vocabulary is smaller."""
MIN_LOGPROB = -50.0
"""Least log-probability stored: a trainer cannot use minus infinity."""
MAX_MASS_ERROR = 0.02
"""Largest error of the sum of a position's probabilities: float16 rounds one by half a per cent."""
MIN_DRAWN_SHARE = 0.5
"""Share of the expected number of answer tokens among the most probable ones that must be there.
High temperatures draw fewer; answers that no model generated have next to none."""
MIN_DRAWN = 8
"""Expected number from which on the share is tested; below, chance may decide."""
MAX_CONTEXT = 2**22
"""Longest record, in tokens: no model has a larger context."""
KEY_BYTES = 16
"""Length of the digest of a question."""

_HEADER = struct.Struct(f"<Iqd{KEY_BYTES}s{KEY_BYTES}sIIII")
_FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class ReplayRecord:
    """One answer, n tokens with its prompt, of which m positions have probabilities.

    Attributes:
        id: number in its buffer, ascending; 0 before it is stored.
        chat: the chat's number in the history; 0 for none.
        created: seconds since the epoch.
        question: digest of the question, in hexadecimal.
        topic: digest of the first question of the chat. Holding out whole topics holds out every
            later turn whose context repeats them.
        tokens: int32 [n], the prompt and the answer.
        prompt_length: number of tokens of the prompt.
        positions: int32 [m], ascending indexes into `tokens`: token positions[i] was drawn from
            distribution i, whose context is tokens[:positions[i]].
        top_tokens: int32 [m, 64], the target's most probable tokens, best first.
        top_logprobs: float16 [m, 64], their natural log-probabilities at temperature 1.
        rest_logprob: float16 [m], log of the mass of all other tokens.
        states: those that produced the answer's first tokens; stored separately, and for fewer
            answers.
    """

    id: int
    chat: int
    created: float
    question: str
    topic: str
    tokens: Integers
    prompt_length: int
    positions: Integers
    top_tokens: Integers
    top_logprobs: Halves
    rest_logprob: Halves
    states: AnswerStates = NO_STATES


def question_key(text: str) -> str:
    """The key of a question, which ignores case, punctuation and spacing."""
    words = "".join(letter if letter.isalnum() else " " for letter in text.casefold()).split()
    # A text without letters or digits is its own key.
    content = " ".join(words) or text.strip()
    return hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=KEY_BYTES).hexdigest()


def shortened(record: ReplayRecord, length: int) -> ReplayRecord:
    """`record` with only the first `length` tokens of its answer."""
    end, states = record.prompt_length + length, record.states
    return replace(
        thinned(record, record.positions < end),
        tokens=record.tokens[:end],
        states=AnswerStates(states.codes[:length], states.scales[:length]),
    )


def thinned(record: ReplayRecord, kept: Sequence[bool] | NDArray[np.bool_]) -> ReplayRecord:
    """`record` with only those of its m distributions that are `kept`, [m]."""
    chosen = np.asarray(kept, bool)
    return replace(
        record,
        positions=record.positions[chosen],
        top_tokens=record.top_tokens[chosen],
        top_logprobs=record.top_logprobs[chosen],
        rest_logprob=record.rest_logprob[chosen],
    )


def require_valid(record: ReplayRecord, vocabulary: int) -> None:
    """Check that a target with `vocabulary` tokens can have generated `record`.

    Raises:
        ValueError: it cannot; the message says why.
    """
    _require_answer(record, vocabulary)
    _require_distributions(record, vocabulary)


def pack(record: ReplayRecord) -> bytes:
    """The bytes of all but the id and the states."""
    header = _HEADER.pack(
        _FORMAT,
        record.chat,
        record.created,
        bytes.fromhex(record.question),
        bytes.fromhex(record.topic),
        len(record.tokens),
        record.prompt_length,
        *record.top_tokens.shape,
    )
    columns = (record.tokens, record.positions, record.top_tokens)
    halves = (record.top_logprobs, record.rest_logprob)
    return b"".join(
        [
            header,
            *(column.astype("<i4").tobytes() for column in columns),
            *(column.astype("<f2").tobytes() for column in halves),
        ]
    )


def unpack(number: int, packed: bytes) -> ReplayRecord:
    """The record that `pack` was given, with the id `number` and without states.

    Only its length is checked.

    Raises:
        ValueError: these are not the bytes of a record.
    """
    if len(packed) < _HEADER.size:
        raise ValueError("it is cut short")
    form, chat, created, question, topic, length, prompt, rows, kept = _HEADER.unpack_from(packed)
    if form != _FORMAT:
        raise ValueError(f"its format is {form}, not {_FORMAT}")
    integers = 4 * (length + rows + rows * kept)
    if len(packed) != _HEADER.size + integers + 2 * (rows * kept + rows):
        raise ValueError("its length is not that of its parts")
    words = np.frombuffer(packed, "<i4", integers // 4, _HEADER.size).astype(np.int32)
    halves = np.frombuffer(packed, "<f2", -1, _HEADER.size + integers).astype(np.float16)
    return ReplayRecord(
        id=number,
        chat=chat,
        created=created,
        question=question.hex(),
        topic=topic.hex(),
        tokens=words[:length],
        prompt_length=prompt,
        positions=words[length : length + rows],
        top_tokens=words[length + rows :].reshape(rows, kept),
        top_logprobs=halves[: rows * kept].reshape(rows, kept),
        rest_logprob=halves[rows * kept :],
    )


def top_of(logits: NDArray[np.float32]) -> tuple[Integers, Halves, Halves]:
    """The stored columns of rows of logits [m, vocabulary], vocabulary ≥ 2.

    Returns:
        top_tokens [m, k], top_logprobs [m, k] and rest_logprob [m], with k at most `TOP`.
    """
    rows, size = logits.shape
    kept = min(TOP, size)
    tokens = np.empty((rows, kept), np.int32)
    top, rest = np.empty((rows, kept)), np.empty(rows)
    for index, row in enumerate(logits):
        found = np.argpartition(row, size - kept)[size - kept :]
        found = found[np.argsort(-row[found], kind="stable")]
        # Sums in float64: the rest may be a millionth of the whole.
        weights = np.exp(row - row[found[0]])
        total = np.log(weights.sum(dtype=np.float64))
        weights[found] = 0.0
        with np.errstate(divide="ignore"):
            rest[index] = np.log(weights.sum(dtype=np.float64)) - total
        tokens[index] = found
        top[index] = row[found].astype(np.float64) - row[found[0]] - total
    return tokens, _halves(top), _halves(rest)


def _halves(logprobs: NDArray[np.float64]) -> Halves:
    return np.clip(logprobs, MIN_LOGPROB, 0.0).astype(np.float16)


def _require_answer(record: ReplayRecord, vocabulary: int) -> None:
    length = len(record.tokens)
    if not 0 < record.prompt_length < length <= MAX_CONTEXT:
        raise ValueError(f"{record.prompt_length} of {length} tokens cannot be its prompt")
    if not 0.0 <= record.created < np.inf:
        raise ValueError(f"it was created at {record.created}")
    _require_tokens(record.tokens, vocabulary)
    positions = record.positions
    if len(positions) and not (record.prompt_length <= positions[0] <= positions[-1] < length):
        raise ValueError(f"position {positions[-1]} is not in its answer")
    if (np.diff(positions) <= 0).any():
        raise ValueError("its positions do not ascend")
    if len(record.states) > length - record.prompt_length:
        raise ValueError(f"it has {len(record.states)} states, more than its answer has tokens")


def _require_distributions(record: ReplayRecord, vocabulary: int) -> None:
    shape = (len(record.positions), min(TOP, vocabulary))
    if not (record.top_tokens.shape == record.top_logprobs.shape == shape):
        raise ValueError(f"it keeps {record.top_tokens.shape} tokens, not {shape}")
    if record.rest_logprob.shape != shape[:1]:
        raise ValueError("it has no rest for each position")
    _require_tokens(record.top_tokens, vocabulary)
    sorted_tokens = np.sort(record.top_tokens, axis=1)
    if (np.diff(sorted_tokens, axis=1) == 0).any():
        raise ValueError("a token is twice among the likeliest of a position")
    logprobs = np.concatenate([record.top_logprobs, record.rest_logprob[:, None]], axis=1)
    # `not all` also rejects NaNs.
    if not ((logprobs >= MIN_LOGPROB) & (logprobs <= 0.0)).all():
        raise ValueError("a log-probability is not a number from -50 to 0")
    mass = np.exp(logprobs.astype(np.float64)).sum(1)
    wrong = np.flatnonzero(np.abs(mass - 1.0) > MAX_MASS_ERROR)
    if len(wrong):
        raise ValueError(f"its probabilities at one position sum to {mass[wrong[0]]:.3g}")
    _require_drawn(record)


def _require_drawn(record: ReplayRecord) -> None:
    """Check that the answer can have been drawn from its probabilities."""
    expected = (1.0 - np.exp(record.rest_logprob.astype(np.float64))).sum()
    answer = record.tokens[record.positions]
    drawn = int((record.top_tokens == answer[:, None]).any(axis=1).sum())
    if expected >= MIN_DRAWN and drawn < MIN_DRAWN_SHARE * expected:
        raise ValueError(
            f"only {drawn} of {len(answer)} tokens are among the likeliest of their positions"
        )


def _require_tokens(tokens: Integers, vocabulary: int) -> None:
    wrong = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if len(wrong):
        raise ValueError(f"token {wrong[0]} is not in the vocabulary of {vocabulary}")
