"""Sampling the next token: a pure function of (logits, settings, seed, offset in the answer).

Every emitted token is drawn from the target's own distribution exactly once, so speculative
decoding has the target's distribution at any temperature. The draw perturbs the scaled logits with
Gumbel noise keyed by hash(seed, offset, token) and takes the largest sum (the Gumbel-max trick).
Nothing has to be rewound, the same seed gives the same answer again, and a draft model that shares
the noise agrees more often at T > 0. The offset counts the answer's own tokens, so the noise does
not change when a longer passage is put before the prompt.

That the answer does not depend on the drafts has a price, which is small. With the noise shared, a
target that draws from p and a draft model that draws from q take the same token with probability
Σ_i 1 / Σ_j max(p_j / p_i, q_j / q_i). It is at least (1 - d) / (1 + d), where d is their total
variation, and in the worst case no rule that does not know the other's distribution has more
(Daliri et al., arXiv 2408.07978). A draw that depends on the draft reaches 1 - d. At 1,386
positions of Qwen2.5-Coder-1.5B's answers to MT-Bench, with the 0.5B as draft model and the default
truncation, it is .804 of .815 at temperature 0.7, and .796 of .813 at 1 (Q4_K_M; the bounds are
.753 and .741). Two draws by inverse distribution function from one shared number had .792 and .777.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt, log

import numpy as np
from numpy.typing import NDArray

from engines.target import Floats

Indices = NDArray[np.intp]


def best(row: Floats, count: int) -> Indices:
    """Indices of the `count` ≥ 1 largest entries of `row` [V], largest first, ties by index.

    The vocabulary is folded into stripes, whose element-wise maximum is taken. The `count` largest
    of these maxima are entries themselves, so none of the wanted entries is smaller, and few others
    are as large. These two vectorised passes take a fifteenth of the time of `argpartition` at
    V = 128,000. √(V / count) stripes keep both the selection and the final sort small.
    """
    size = row.shape[0]
    count = min(count, size)
    stripes = isqrt(size // count)
    columns = size // stripes
    folded = row[: columns * stripes].reshape(stripes, columns).max(axis=0)
    folded.partition(columns - count)
    found: Indices = (row >= folded[columns - count]).nonzero()[0]
    if len(found) < count:
        found = np.arange(size)  # NaNs, which sort last
    order = (-row[found]).argsort(kind="stable")[:count]
    return found[order]


MAX_SORTED = 512
"""Most entries near the largest that `leaders` sorts: for a flat distribution, sorting them all
takes milliseconds."""


def leaders(row: Floats, count: int, within: float) -> tuple[Indices, Floats]:
    """The up to `count` largest entries of `row` [V] that are less than `within` below the largest.

    A model's distribution has few such tokens, so two comparisons of V entries find them.
    """
    found: Indices = (row > row.max() - within).nonzero()[0]
    if len(found) > MAX_SORTED:
        found = best(row, count)
        return found, row[found]
    values = row[found]
    if len(found) > 1:
        order = (-values).argsort(kind="stable")[:count]
        found, values = found[order], values[order]
    return found, values


Draw = Callable[[Floats, int, Sequence[int]], int]
"""(row of logits [V], offset in the answer, context so far) → token."""
Constrain = Callable[[Draw], Draw]
"""Restricts a draw to some tokens, which depend on the answer so far alone. The result may keep
that state: it is called once for each token of the answer, in order."""
Score = Callable[[Floats, int], tuple[Indices, NDArray[np.float64]]]
"""(row of logits, offset) → the tokens that may be drawn and their scores; the largest wins."""

SURE_LEAD = 1e-3
"""Logits beyond the threshold of min-p at which a token is dropped whatever the rounding."""
INITIAL_CANDIDATES = 128
"""Tokens sorted first where top-k sets no limit."""
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Sampling:
    """The user's sampling settings, applied in llama.cpp's order.

    Attributes:
        temperature: 0 is greedy; then only the penalty matters.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches this; 1 keeps all.
        min_p: drop tokens below this share of the largest probability; 0 drops none.
        repeat_penalty: divides positive and multiplies negative logits of recent tokens; 1 is off.
        repeat_window: number of latest tokens that the penalty applies to.
        seed: key of the noise.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_window: int = 64
    seed: int = 0


def greedy(row: Floats, offset: int, context: Sequence[int]) -> int:
    """Take the most probable token."""
    return int(row.argmax())


def make_sampler(sampling: Sampling) -> Draw:
    """The draw function for these settings."""
    if sampling.temperature <= 0:
        return lambda row, offset, context: int(penalise(row, context, sampling).argmax())
    scores = make_scores(sampling)
    # The logit gap to the most probable token from which on min-p drops tokens; 0 where it is off.
    lead = SURE_LEAD - log(sampling.min_p) if sampling.min_p > 0.0 else 0.0

    def draw(row: Floats, offset: int, context: Sequence[int]) -> int:
        row = penalise(row, context, sampling)
        if lead:
            likeliest = int(row.argmax())
            if np.count_nonzero(row > row[likeliest] - lead) == 1:
                return likeliest  # the only candidate, whatever the noise
        tokens, values = scores(row, offset)
        return int(tokens[values.argmax()])

    return draw


def draw_gap(sampling: Sampling, row: Floats, offset: int, context: Sequence[int]) -> float:
    """The difference between the two largest scores of a draw."""
    _, values = make_scores(sampling)(penalise(row, context, sampling), offset)
    runner_up, winner = np.partition(values, -2)[-2:] if len(values) > 1 else (-np.inf, values[0])
    return float(winner - runner_up)


def make_scores(sampling: Sampling) -> Score:
    """The scores of a draw: logits at temperature 0, else perturbed scaled logits."""
    if sampling.temperature <= 0:
        return lambda row, offset: (np.arange(row.shape[0]), row.astype(np.float64))

    def perturbed(row: Floats, offset: int) -> tuple[Indices, NDArray[np.float64]]:
        tokens = candidates(row, sampling)
        values = row[tokens].astype(np.float64) / sampling.temperature
        if len(tokens) > 1:  # a single candidate is drawn whatever the noise
            values += noise(sampling.seed, offset, tokens)
        return tokens, values

    return perturbed


def penalise(row: Floats, context: Sequence[int], sampling: Sampling) -> Floats:
    """A copy of `row` with the repeat penalty applied; `row` itself if the penalty is off."""
    if sampling.repeat_penalty == 1.0:
        return row
    recent = np.unique(np.asarray(context[-sampling.repeat_window :], dtype=np.intp))
    penalty = np.float32(sampling.repeat_penalty)
    row = row.copy()
    kept = row[recent]
    row[recent] = np.where(kept > 0, kept / penalty, kept * penalty)
    return row


def noise(seed: int, offset: int, tokens: Indices) -> NDArray[np.float64]:
    """Standard Gumbel noise for each of `tokens`, keyed by (seed, offset, token).

    It applies two rounds of the splitmix64 finaliser to one key for each (seed, offset).
    """
    key = _mix(_mix(seed & MASK) ^ (offset * GOLDEN & MASK))
    words = tokens.astype(np.uint64)
    words += np.uint64(key)
    words *= np.uint64(GOLDEN)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    result: NDArray[np.float64] = -np.log(-np.log(uniform))
    return result


def _mix(word: int) -> int:
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return word ^ word >> 31


def candidates(row: Floats, sampling: Sampling) -> Indices:
    """Token ids of `row` [V] that survive top-k, top-p and min-p, in that order."""
    if not sampling.top_k and sampling.top_p >= 1.0 and sampling.min_p <= 0.0:
        return np.arange(row.shape[0])
    total = _mass(row) if not sampling.top_k and sampling.top_p < 1.0 else 0.0
    count = sampling.top_k or INITIAL_CANDIDATES
    while True:
        tokens = best(row, count)
        weights = np.exp(row[tokens] - row[tokens[0]], dtype=np.float64)
        keep = surviving(weights, total, sampling)
        # Without top-k, more tokens may survive than were sorted.
        if sampling.top_k or keep < len(tokens) or len(tokens) == row.shape[0]:
            return tokens[:keep]
        count *= 4


def surviving(weights: NDArray[np.float64], total: float, sampling: Sampling) -> int:
    """The number of `weights` that top-p and min-p keep.

    Args:
        weights: probabilities relative to the largest, which comes first; descending.
        total: the mass of the whole vocabulary; 0 if `weights` has all of it.
    """
    keep = len(weights)
    if sampling.top_p < 1.0:
        mass = np.cumsum(weights)
        keep = int(np.searchsorted(mass, sampling.top_p * (total or mass[-1]))) + 1
    if sampling.min_p > 0.0:
        keep = min(keep, int(np.searchsorted(-weights, -sampling.min_p, side="right")))
    return min(max(keep, 1), len(weights))


def _mass(row: Floats) -> float:
    return float(np.exp(row - row.max(), dtype=np.float64).sum())
