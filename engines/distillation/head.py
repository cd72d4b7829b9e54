"""The draft head in torch, for training: its forward pass, its loss and its file.

It learns from states of the target in the replay buffer. From each state it is unrolled `UNROLL`
steps over the recorded text, and at each step it should arrive at the target's next state, which
determines its tokens (EAGLE, arXiv 2401.15077): a state teaches more than a token, and a user's
history is short. It also learns the tokens, over a sample of the draft vocabulary: those that the
target found probable anywhere in the batch, and some others that represent the rest (importance
sampling, Bengio and Senécal 2008).

`engines.drafters.head` has the same arithmetic for drafting.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from datastores.errors import ModelError, StoreError
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.output_matrix import OutputMatrix
from engines.drafters.head import EPSILON, FOLDED, FORMAT, NETWORK, RECENT
from engines.target import Floats

STATE, EMBEDDED, RANK = 256, 128, 256
"""Sizes: for a target of width 4,096, 3.2 million weights, and 8 MB of rows for 8,192 tokens."""
DRAFT_VOCABULARY = 8192
"""Most tokens that it can draft."""
UNROLL = 3
"""Tokens that it is trained to draft from one state."""
DEPTH_WEIGHT = 0.8
"""Weight of each step of the unrolling, relative to the one before."""
LIKELIEST = 16
"""Most probable tokens of the target's distribution that are learned…"""
MIN_PROBABILITY = 0.002
"""…unless their probability is below this."""
NEGATIVES = 256
"""Tokens of the sample besides those that were probable in the batch."""
STATE_WEIGHT = 20.0
"""Weight of the squared error of states, relative to their mean square."""
DROPOUT = 0.02
"""Dropout of states and before the output; 0.1 learns more slowly and no better."""
SAMPLED_STATES = 4096
"""States from which the output is initialised."""


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """The tokens that a head can draft.

    Attributes:
        tokens: int64 [n].
        rows: float32 [n, width], their rows in the target's output matrix, divided by `spread`.
        index: int64 [vocabulary], the place of each of the target's tokens; n for all others.
        spread: standard deviation of the original rows.
    """

    tokens: Tensor
    rows: Tensor
    index: Tensor
    spread: float

    def __len__(self) -> int:
        return len(self.tokens)


def frequent_tokens(records: Iterable[ReplayRecord], vocabulary: int) -> NDArray[np.int64]:
    """The tokens used most in the answers of `records`, ascending.

    The first tokens of the vocabulary fill up the rest: tokenizers number frequent tokens first.
    """
    counts = Counter[int]()
    for record in records:
        counts.update(record.tokens[record.prompt_length :].tolist())
    ranked = sorted(range(vocabulary), key=lambda token: (-counts[token], token))
    return np.sort(np.array(ranked[:DRAFT_VOCABULARY], np.int64))


def draft_vocabulary(matrix: OutputMatrix, tokens: NDArray[np.int64]) -> DraftVocabulary:
    """The draft vocabulary of `tokens`, with their rows in the target's output matrix.

    Raises:
        ModelError: they cannot be read.
    """
    rows = matrix.rows(tokens)
    index = np.full(matrix.size, len(tokens), np.int64)
    index[tokens] = np.arange(len(tokens))
    spread = max(float(rows.std()), EPSILON)
    scaled, kept = torch.from_numpy(rows / spread), torch.from_numpy(tokens)
    return DraftVocabulary(kept, scaled, torch.from_numpy(index), spread)


def trainable(record: ReplayRecord) -> bool:
    """Whether the record holds a state that at least two tokens follow."""
    return len(record.states) > 0 and len(record.tokens) > record.prompt_length + 1


@dataclass(frozen=True, slots=True)
class HeadBatch:
    """m states of some answers and what followed, unrolled over k steps.

    Tokens are given by their places in the draft vocabulary.

    Attributes:
        hidden: float32 [m, width], the states.
        recent: int64 [m, RECENT], the token that the state produced, then those before it.
        following: int64 [m, k], the tokens after it.
        ahead: float32 [m, k, width], the states that produced these; zeros where unknown.
        likely: int64 [m, k, LIKELIEST], the tokens that the target found probable there.
        chances: float32 [m, k, LIKELIEST], their probabilities. All 0 after the end of an answer,
            and for tokens outside the draft vocabulary.
    """

    hidden: Tensor
    recent: Tensor
    following: Tensor
    ahead: Tensor
    likely: Tensor
    chances: Tensor


def make_head_batch(records: Sequence[ReplayRecord], vocabulary: DraftVocabulary) -> HeadBatch:
    """A batch of all states of `records`, which must be `trainable`."""
    parts = [_answer_columns(record, vocabulary) for record in records]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return HeadBatch(*map(torch.from_numpy, columns))


def _answer_columns(
    record: ReplayRecord, vocabulary: DraftVocabulary
) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64], Floats]:
    """The columns of a `HeadBatch` for one answer."""
    start, outside = record.prompt_length, len(vocabulary)
    index = vocabulary.index.numpy()
    states = min(len(record.states), len(record.tokens) - start - 1)
    tokens = np.concatenate([index[record.tokens], np.full(UNROLL, outside)])
    likely, chances = _targets(record, index, outside)
    hidden = np.pad(record.states.decoded(), ((0, UNROLL + 1), (0, 0)))
    roots = start + np.arange(states)
    following = roots[:, None] + 1 + np.arange(UNROLL)
    before = roots[:, None] - np.arange(RECENT)
    return (
        hidden[:states],
        np.where(before >= 0, tokens[before], outside),
        tokens[following],
        hidden[following - start],
        likely[following - start],
        chances[following - start],
    )


def _targets(
    record: ReplayRecord, index: NDArray[np.int64], outside: int
) -> tuple[NDArray[np.int64], Floats]:
    """The targets of each token of the answer, followed by `UNROLL` empty rows."""
    answer = record.tokens[record.prompt_length :]
    rows = len(answer) + UNROLL
    likely = np.full((rows, LIKELIEST), outside, np.int64)
    chances = np.zeros((rows, LIKELIEST), np.float32)
    # Where the distribution was not stored, the emitted token stands for it.
    likely[: len(answer), 0], chances[: len(answer), 0] = index[answer], 1.0
    places, kept = record.positions - record.prompt_length, record.top_tokens.shape[1]
    count = min(kept, LIKELIEST)
    likely[places, :count] = index[record.top_tokens[:, :count]]
    chances[places, :count] = np.exp(record.top_logprobs[:, :count].astype(np.float32))
    chances[(chances < MIN_PROBABILITY) | (likely == outside)] = 0.0
    return likely, chances


class HeadModel(nn.Module):
    """The head, with the maps of the target's rows that a file holds folded."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.state = _matrix(STATE, width)
        self.recent = _matrix(STATE, (RECENT - 1) * EMBEDDED)
        self.gate = _matrix(2 * STATE, STATE + EMBEDDED)
        self.up = _matrix(2 * STATE, STATE + EMBEDDED)
        self.down = _matrix(STATE, 2 * STATE)
        self.output = _matrix(min(RANK, width), STATE)
        self.embed = _matrix(EMBEDDED, width)
        self.unembed = _matrix(min(RANK, width), width)

    @torch.no_grad()
    def fit_output(self, states: Tensor) -> None:
        """Initialise the output with the principal directions of `states` [n, width]."""
        centred = states - states.mean(dim=0)
        rank = min(len(self.unembed), *centred.shape)
        _, spreads, directions = torch.svd_lowrank(centred, q=rank)
        self.unembed[:rank] = directions.T * spreads.unsqueeze(1) * len(states) ** -0.5

    def embeddings(self, rows: Tensor) -> Tensor:
        """Embeddings [n + 1, e] of tokens whose rows are [n, width]; the last are zeros."""
        return F.pad(_norm(F.linear(rows, self.embed)), (0, 0, 0, 1))

    def folded(self, rows: Tensor) -> Tensor:
        """Output rows [n, rank] of the same tokens."""
        return F.linear(rows, self.unembed)

    def begin(self, hidden: Tensor, recent: Tensor) -> Tensor:
        """The first state [m, d], of `hidden` [m, width] and `recent` [m, RECENT - 1, e]."""
        seen = F.dropout(_norm(hidden), DROPOUT, self.training)
        return F.linear(seen, self.state) + F.linear(recent.flatten(1), self.recent)

    def advance(self, state: Tensor, token: Tensor) -> Tensor:
        """The state after a token with the embedding `token` [m, e]."""
        seen = torch.cat((_norm(state), token), dim=1)
        gated = F.silu(F.linear(seen, self.gate)) * F.linear(seen, self.up)
        return state + F.linear(gated, self.down)

    def compressed(self, state: Tensor) -> Tensor:
        """The head's prediction of the target's next state, [m, rank].

        Folded rows [n, rank] turn it into logits, and `unembed` into that state.
        """
        return F.linear(F.dropout(_norm(state), DROPOUT, self.training), self.output)


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(rows, columns).uniform_(-1.0, 1.0) * columns**-0.5)


def _norm(values: Tensor) -> Tensor:
    return F.rms_norm(values, values.shape[-1:], eps=EPSILON)


def head_loss(model: HeadModel, batch: HeadBatch, vocabulary: DraftVocabulary) -> Tensor:
    """The mean loss per state: distance from the target's states and probable tokens.

    The cross-entropy is taken over the batch's probable tokens and `NEGATIVES` others, which are
    weighted to represent all tokens that were not drawn.
    """
    sample, correction, places = _sampled(batch, len(vocabulary))
    rows, likely = model.folded(vocabulary.rows[sample]), places[batch.likely]
    used, back = torch.unique(torch.cat((batch.recent, batch.following), 1), return_inverse=True)
    inside = used[used < len(vocabulary)]
    tokens = model.embeddings(vocabulary.rows[inside])[back]
    # In units of the rows, so that products with the rows are the target's logits.
    ahead = batch.ahead * vocabulary.spread
    known = ahead.abs().sum(dim=2) > 0.0
    # A batch may hold no state that follows another, where a plain mean would be 0 / 0.
    mean_square = ahead.square().sum() / (known.sum().clamp(min=1) * model.width)
    scale = STATE_WEIGHT / mean_square.clamp(min=EPSILON)

    state = model.begin(batch.hidden, tokens[:, 1:RECENT])
    loss, token = torch.zeros(()), tokens[:, 0]
    for depth in range(batch.following.shape[1]):
        state = model.advance(state, token)
        compressed = model.compressed(state)
        missed = (F.linear(compressed, model.unembed.T) - ahead[:, depth]).square().mean(dim=1)
        logits = F.linear(compressed, rows) + correction
        logs = logits.gather(1, likely[:, depth]) - logits.logsumexp(dim=1, keepdim=True)
        entropy = -(batch.chances[:, depth] * logs).sum(dim=1)
        loss = loss + DEPTH_WEIGHT**depth * (entropy + scale * missed * known[:, depth]).sum()
        token = tokens[:, RECENT + depth]
    return loss / len(batch.hidden)


def _sampled(batch: HeadBatch, total: int) -> tuple[Tensor, Tensor, Tensor]:
    """A sample [n] of `total` tokens, the corrections of their logits, and their places in it."""
    is_likely = torch.zeros(total, dtype=torch.bool)
    is_likely[batch.likely[batch.chances > 0.0]] = True
    drawn = torch.randperm(total)[:NEGATIVES]
    others = drawn[~is_likely[drawn]]
    sample = torch.cat((is_likely.nonzero().squeeze(1), others))
    left = total - int(is_likely.sum())
    correction = torch.zeros(len(sample))
    correction[len(sample) - len(others) :] = np.log(max(left, 1) / max(len(others), 1))
    places = torch.zeros(total + 1, dtype=torch.int64)
    places[sample] = torch.arange(len(sample))
    return sample, correction, places


@torch.no_grad()
def first_logits(model: HeadModel, batch: HeadBatch, vocabulary: DraftVocabulary) -> Tensor:
    """Logits [m, n + 1] of the first token after each state; tokens outside come last."""
    tokens = model.embeddings(vocabulary.rows)[batch.recent]
    state = model.advance(model.begin(batch.hidden, tokens[:, 1:]), tokens[:, 0])
    logits = F.linear(model.compressed(state), model.folded(vocabulary.rows))
    return F.pad(logits, (0, 1), value=-torch.inf)


def write_head(
    weights: Mapping[str, Tensor], vocabulary: DraftVocabulary, target: str, path: Path
) -> None:
    """Write the head of these `weights` for the model of the fingerprint `target`.

    The whole file is synced to disk when this returns; an error leaves none.

    Raises:
        StoreError: the file cannot be written.
    """
    model = HeadModel(weights["state"].shape[1])
    model.load_state_dict(dict(weights))
    with torch.no_grad():
        rows, embeddings = (
            values.to(torch.float16).contiguous()
            for values in (
                model.folded(vocabulary.rows),
                model.embeddings(vocabulary.rows)[:-1],
            )
        )
    tensors = dict(zip(FOLDED, (rows, embeddings), strict=True)) | {"tokens": vocabulary.tokens}
    about = {
        "format": FORMAT,
        "target": target,
        "width": model.width,
        "vocabulary": len(vocabulary.index),
    }
    content = save({**weights, **tensors}, {"about": json.dumps(about)})
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def read_weights(path: Path) -> tuple[dict[str, Tensor], NDArray[np.int64]]:
    """The weights that `write_head` was given, and the tokens of its vocabulary.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        with safe_open(path, "pt") as file:
            weights = {name: file.get_tensor(name) for name in (*NETWORK, "embed", "unembed")}
            return weights, file.get_tensor("tokens").numpy()
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} is not a draft head, or is damaged: {error}") from error
