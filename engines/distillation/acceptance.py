"""α of a drafting model: the share of its drafts that the target accepts at a sampler's settings.

α = Σ min(p, q), where answers are drawn from p and drafts from q (Leviathan et al. 2023, theorem
3.5). Both are the sampler's own distributions: top-k, top-p and min-p first, then the temperature;
at 0, α is 1 where both prefer the same token. The repeat penalty is left out, since it changes
logits, of which a record has only the probabilities.

Of the target, the most probable tokens are known and the mass of all others. At the default
settings no other one can be drawn. Where one can, they are one event, as in the training losses;
for a temperature other than 1, each is taken to be as probable as the last known token. If top-k
keeps more tokens than are known, top-p is taken of all tokens instead of those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datastores.replay_buffer.record import MIN_LOGPROB, ReplayRecord
from engines.sampler import Sampling, candidates, surviving
from engines.target import Floats

Shares = NDArray[np.float64]

WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""No truncation, temperature 1: what the models learn at, and the papers' α."""
PREFERRED = Sampling(temperature=0.0)
"""Whether both prefer the same token."""


def answer_acceptances(
    record: ReplayRecord,
    first: int,
    logits: Floats,
    sampling: Sampling,
    columns: NDArray[np.int64] | None = None,
) -> Shares:
    """α at n tokens of an answer, [n]. Where only the emitted token is known, it stands for the
    target's distribution.

    Args:
        first: index in `record.tokens` of the first of them.
        logits: [n, columns], the drafting model's.
        columns: int64 [vocabulary], the column of each token; None if its number is.
    """
    end = first + len(logits)
    known = (record.positions >= first) & (record.positions < end)
    places = record.positions[known]
    emitted = np.setdiff1d(np.arange(first, end), places)
    logs = np.concatenate([record.top_logprobs, record.rest_logprob[:, None]], axis=1)[known]
    found = np.empty(len(logits))
    for at, tokens, log_p in (
        (places, record.top_tokens[known], logs),
        (emitted, record.tokens[emitted, None], np.tile([0.0, MIN_LOGPROB], (len(emitted), 1))),
    ):
        top = tokens if columns is None else columns[tokens]
        found[at - first] = acceptances(top, log_p, logits[at - first], sampling)
    return found


def acceptances(
    top: NDArray[np.integer], log_p: NDArray[np.floating], logits: Floats, sampling: Sampling
) -> Shares:
    """α at n positions, [n]; not a number where the drafting model's logits are not.

    Args:
        top: [n, k], the target's most probable tokens, best first.
        log_p: [n, k + 1], their log-probabilities at temperature 1, and that of all others.
        logits: [n, vocabulary], the drafting model's.
    """
    finite = np.isfinite(logits.max(axis=1))
    if sampling.temperature <= 0.0:
        return np.where(finite, logits.argmax(axis=1) == top[:, 0], np.nan)
    found, q = np.full(len(logits), np.nan), np.zeros(logits.shape[1])
    for index in np.flatnonzero(finite):
        p, row = _target_shares(log_p[index].astype(np.float64), sampling), logits[index]
        likely, drawn = top[index, : len(p) - 1], candidates(row, sampling)
        weights = np.exp((row[drawn].astype(np.float64) - row[drawn[0]]) / sampling.temperature)
        q[drawn] = weights / weights.sum()
        others = max(1.0 - q[likely].sum(), 0.0)
        found[index] = np.minimum(p[:-1], q[likely]).sum() + min(p[-1], others)
        q[drawn] = 0.0
    return found


def _target_shares(log_p: Shares, sampling: Sampling) -> Shares:
    """The probabilities of the tokens that may be drawn, best first, and of all others, last.

    Args:
        log_p: [k + 1], as a row of `acceptances`.
    """
    weights = np.exp(log_p - log_p[0])
    kept, total = weights[:-1], weights.sum()
    if 0 < sampling.top_k <= len(kept):
        kept, total = kept[: sampling.top_k], kept[: sampling.top_k].sum()
    count = surviving(kept, total, sampling)
    # The mass that top-p takes from the others, if it gets to them.
    rest = max(sampling.top_p * total - kept.sum(), 0.0) if count == len(kept) else 0.0
    tempered = 1.0 / sampling.temperature
    shares = kept[:count] ** tempered
    others = rest * kept[count - 1] ** (tempered - 1.0)
    result: Shares = np.append(shares, others) / (shares.sum() + others)
    return result
