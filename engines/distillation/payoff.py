"""The time that a draft head saves at best: whether it can pay off on this machine at all.

Over held-out answers it drafts a chain at every few tokens, and is timed. The costs V(n) of passes
and the head's own probabilities give what drafting the surest share of the chains would have saved;
the best share and length count. A head whose every use loses thus has a negative gain, however the
budget chooses among its drafts. If V(2) − V(1) is most of a pass, or a pass of the target is as
short as one of the head, that holds for good heads too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from datastores.replay_buffer.record import ReplayRecord
from engines.drafters.head import MAX_DEPTH, Head, HeadText
from engines.drafters.model_drafter import likeliest
from engines.target import Floats

MAX_POSITIONS = 1500
"""Most held-out positions that are drafted at, which takes some seconds."""
UNDISTURBED = 0.1
"""Quantile of the timed steps. Training runs at the lowest priority, and next to other programs the
median of Qwen 1.5B's head was 4.8 ms where it takes 0.14."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """The cost of a pass of the target on this machine.

    Attributes:
        plain_s: seconds of a pass with one row, V(1).
        ratios: V(n) ÷ V(1) by n, for 0 (unused) to at least `MAX_DEPTH` + 1 rows.
    """

    plain_s: float
    ratios: Sequence[float]


@dataclass(frozen=True, slots=True)
class Payoff:
    """The time that a head saves.

    Attributes:
        gain: tokens that it adds in the time of a plain pass, at best; negative if it only costs.
        draft_s: seconds of a drafted token.
        plain_s: seconds of a plain pass.
    """

    gain: float
    draft_s: float
    plain_s: float


@dataclass(frozen=True, slots=True)
class _Chains:
    """The chains drafted at m positions.

    Attributes:
        paths: float32 [m, depth], the head's own probability of each prefix of a chain.
        accepted: float32 [m, depth], the accepted tokens of a chain of this length.
        draft_s: seconds of a drafted token while no other program uses the cores.
    """

    paths: Floats
    accepted: Floats
    draft_s: float


def measure_payoff(head: Head, held_out: Sequence[ReplayRecord], costs: PassCosts) -> Payoff:
    """Measure `head` on `held_out` answers, whose states are known."""
    chains = _draft(HeadText(head), held_out)
    gain = best_gain(chains.paths, chains.accepted, chains.draft_s / costs.plain_s, costs.ratios)
    return Payoff(gain, chains.draft_s, costs.plain_s)


def best_gain(paths: Floats, accepted: Floats, step: float, ratios: Sequence[float]) -> float:
    """Tokens per position that verifying the surest chains gains, less their cost.

    Args:
        paths, accepted: [positions, depth], as in `_Chains`.
        step: cost of a drafted token, in plain passes.
        ratios: as in `PassCosts`.
    """
    positions, depths = paths.shape
    gains = [-step]
    for depth in range(1, depths + 1):
        order = np.argsort(-paths[:, depth - 1], kind="stable")
        price = ratios[depth + 1] - ratios[1] + (depth - 1) * step
        saved = np.cumsum(accepted[order, depth - 1].astype(np.float64) - price)
        # The first token is drafted everywhere, since the head's confidence is not known before.
        gains.append(float(saved.max()) / positions - step)
    return max(gains)


def _draft(text: HeadText, held_out: Sequence[ReplayRecord]) -> _Chains:
    places = [(record, place) for record in held_out for place in _places(record)]
    every = max(1, -(-len(places) // MAX_POSITIONS))
    seconds: list[float] = []
    rows = [list(_chain(text, record, place, seconds)) for record, place in places[::every]]
    found = np.array(rows, np.float32).reshape(-1, MAX_DEPTH, 2)
    return _Chains(found[:, :, 0], found[:, :, 1], float(np.quantile(seconds, UNDISTURBED)))


def _places(record: ReplayRecord) -> range:
    """The states of an answer whose token another one follows."""
    return range(min(len(record.states), len(record.tokens) - record.prompt_length - 1))


def _chain(
    text: HeadText, record: ReplayRecord, place: int, seconds: list[float]
) -> Iterator[tuple[float, float]]:
    """The path probability of each drafted token, and the number accepted up to it."""
    root = record.prompt_length + place
    text.hidden = record.states.codes[place] * record.states.scales[place]
    tokens, came = record.tokens[: root + 1].tolist(), record.tokens[root + 1 :].tolist()
    text.begin(tokens)
    path, accepted, follows = 1.0, 0, True
    for depth in range(MAX_DEPTH):
        started = perf_counter()
        token, share = likeliest(text.next_rows(tokens, 1)[0], text.draft_vocabulary)[0]
        seconds.append(perf_counter() - started)
        follows = follows and depth < len(came) and token == came[depth]
        path, accepted = path * share, accepted + follows
        tokens.append(token)
        yield path, accepted
