"""`python -m app.bench dense`: what keys of hidden states find, and what is drafted with them.

DReSD makes a key from the target's last state by z-norm, principal components and unit length
(Gritta et al. 2025, equations 1 and 2). Each `KeyForm` is fitted to other states, keeps another
number of components, or leaves a norm out, and is measured as in the paper (table 2, figure 5): how
much variance the components explain, whether the states nearest by the whole state are found, and
the drafts that follow from it. Then the dense index alone and with the others, beside REST and
CREST, all of the same texts (the paper's figures 6 and 7). Keys of the answer itself, which the
product adds while it is written, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.bench.baselines import RestDrafter
from app.bench.environment import BenchStores
from app.engine.drafters import make_drafters
from datastores.dense.memory import DenseMemory
from datastores.dense.projection import DIMENSIONS, EPSILON, Floats, Projection, code_scale
from datastores.dense.store import TextKeys, TextTokens
from engines.drafter_simulation import CombinedDrafter, Recorded, simulate_steps
from engines.drafters.dense import DenseDrafter
from engines.drafters.protocol import Drafter
from engines.state_encoding import InPlace
from engines.target import Target

FITTED = (1024, 4096, 16_384, 65_536)
"""Numbers of states that keys are fitted to."""
DIMENSION_COUNTS = (32, 64, 96, 128)
"""Numbers of components, as in the paper's table 2."""
NEAREST = 10
"""Nearest states whose recall is measured."""
MIN_LIST = 2 * NEAREST
"""Fewest stored states that led to the same token, for their nearest to be a measure."""
QUERIES = 1000
"""Most states of the answers that are searched for."""


class StateText(NamedTuple):
    """A text that the target has read or written.

    Attributes:
        prompt: number of tokens before the answer, at least 1.
        states: float32 [len(tokens) - prompt, width], those that produced the answer.
    """

    tokens: tuple[int, ...]
    prompt: int
    states: Floats

    @property
    def answer(self) -> tuple[int, ...]:
        """The tokens that the states led to."""
        return self.tokens[self.prompt :]


def read_states(target: Target, tokens: Sequence[int], prompt: int) -> StateText:
    """Let `target` read a text, whose answer starts at position `prompt`; empties its cache."""
    encoder = InPlace(target)
    kept = tokens[: encoder.room]
    parts = [
        encoder.read(kept[start : start + encoder.max_rows], start)
        for start in range(0, len(kept) - 1, encoder.max_rows)
    ]
    target.rewind(0)
    return StateText(tuple(kept), prompt, np.concatenate(parts)[prompt - 1 : len(kept) - 1])


@dataclass(frozen=True, slots=True)
class KeyForm:
    """How states become keys.

    Attributes:
        fitted: number of states that the projection is fitted to, at most.
        z_norm, unit: whether states are z-normed before it, and keys have unit length after it.
    """

    fitted: int
    dimensions: int = DIMENSIONS
    z_norm: bool = True
    unit: bool = True


def forms(available: int, width: int) -> list[KeyForm]:
    """The forms to compare where `available` states are stored; the product's comes first."""
    counts = [count for count in FITTED if count < available] + [available]
    most = counts[-1]
    found = [KeyForm(count) for count in counts]
    found += [KeyForm(most, count) for count in DIMENSION_COUNTS if count <= width]
    found += [KeyForm(most, z_norm=False), KeyForm(most, unit=False)]
    found += [KeyForm(most, z_norm=False, unit=False)]
    return list(dict.fromkeys(found))


class Keys(NamedTuple):
    """A fitted form: `make` turns states [n, width] into keys, which explain `variance`."""

    make: Callable[[Floats], Floats]
    projection: Projection
    variance: float


def fit_keys(states: Floats, form: KeyForm) -> Keys:
    """Fit `form` to the first of `states` [n, width]."""
    sample = states[: form.fitted].astype(np.float64)
    mean = sample.mean(axis=0)
    deviations = np.sqrt(sample.var(axis=0) + EPSILON) if form.z_norm else np.ones(len(mean))
    normed = (sample - mean) / deviations
    values, vectors = np.linalg.eigh(normed.T @ normed / len(normed))
    widest = values[::-1][: form.dimensions]
    weights = vectors[:, ::-1][:, : form.dimensions] / deviations[:, None]
    offset, scale = (mean @ weights).astype(np.float32), code_scale(widest)
    projection = Projection(offset, weights.astype(np.float32), scale)

    def project(raw: Floats) -> Floats:
        keys: Floats = raw @ projection.weights - projection.offset
        return keys

    make = projection.keys if form.unit else project
    return Keys(make, projection, float(widest.sum() / values.sum()))


class Lists:
    """States by the token that they led to, whose nearest are found by all numbers or by keys."""

    def __init__(self, texts: Sequence[StateText]) -> None:
        self.states = np.concatenate([text.states for text in texts])
        self._rows: dict[int, list[int]] = defaultdict(list)
        for row, token in enumerate(token for text in texts for token in text.answer):
            self._rows[token].append(row)

    def nearest(
        self, make: Callable[[Floats], Floats], queries: Sequence[tuple[int, Floats]]
    ) -> list[NDArray[np.int64]]:
        """For each query, a token and a state, all rows of the token's list, nearest first."""
        keys = make(self.states)
        found = []
        for (token, _), key in zip(queries, make(_stacked(queries)), strict=True):
            rows = np.array(self._rows[token])
            distances = ((keys[rows] - key) ** 2).sum(axis=1)
            found.append(rows[np.argsort(distances, kind="stable")])
        return found

    def queries(self, answers: Sequence[StateText]) -> list[tuple[int, Floats]]:
        """Up to `QUERIES` states of `answers`, evenly spaced, whose tokens have long lists."""
        able = [
            (token, state)
            for text in answers
            for token, state in zip(text.answer, text.states, strict=True)
            if len(self._rows.get(token, ())) >= MIN_LIST
        ]
        places = np.linspace(0, len(able) - 1, min(QUERIES, len(able))).astype(int)
        return [able[place] for place in places]


def _stacked(queries: Sequence[tuple[int, Floats]]) -> Floats:
    return np.stack([state for _, state in queries])


def recall(truth: Sequence[NDArray[np.int64]], found: Sequence[NDArray[np.int64]]) -> float:
    """Mean share of the first `NEAREST` of `truth` among the first `NEAREST` found."""
    pairs = zip(truth, found, strict=True)
    return fmean(len(np.intersect1d(a[:NEAREST], b[:NEAREST])) / NEAREST for a, b in pairs)


def reciprocal_rank(
    truth: Sequence[NDArray[np.int64]], found: Sequence[NDArray[np.int64]]
) -> float:
    """Mean reciprocal rank of the first of `truth` among those found (equation 4)."""
    pairs = zip(truth, found, strict=True)
    return fmean(1.0 / (1 + int(np.flatnonzero(b == a[0])[0])) for a, b in pairs)


def memory_of(texts: Sequence[StateText], keys: Keys, vocabulary: int) -> DenseMemory:
    """The dense index of `texts`."""
    memory = DenseMemory(vocabulary)
    memory.serve(keys.projection)
    for number, text in enumerate(texts, 1):
        memory.add_tokens(TextTokens(number, 0, text.tokens))
        positions = np.arange(text.prompt, len(text.tokens))
        memory.add_keys(TextKeys(number, positions, keys.projection.encode(text.states)))
    return memory


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a drafter's drafts of `rows` tokens were worth; the rate is the papers' MAR."""

    rows: int
    tokens_per_step: float
    mean_acceptance_rate: float


def drafted(drafter: Drafter, answers: Sequence[StateText], rows: int) -> Drafted:
    """Simulate a fresh drafter over `answers`."""
    counts = [simulate_steps(drafter, _recorded(text), rows) for text in answers]
    rates = [rate for count in counts for rate in count.rates]
    steps, tokens = sum(one.steps for one in counts), sum(one.tokens for one in counts)
    return Drafted(rows, tokens / max(steps, 1), fmean(rates) if rates else 0.0)


def _recorded(text: StateText) -> Recorded:
    return Recorded(text.tokens[: text.prompt], text.answer, list(text.states))


def measure_forms(
    texts: Sequence[StateText], answers: Sequence[StateText], vocabulary: int, rows: int
) -> Iterator[dict[str, object]]:
    """One row for each form of keys of `texts`, measured on `answers` with drafts of `rows`."""
    lists = Lists(texts)
    queries = lists.queries(answers)
    whole = KeyForm(len(lists.states), lists.states.shape[1])
    truth = lists.nearest(_z_norm(lists.states), queries) if queries else []
    for form in forms(len(lists.states), whole.dimensions):
        keys = fit_keys(lists.states, form)
        row: dict[str, object] = {
            "fitted_to": form.fitted,
            "dimensions": form.dimensions,
            "z_norm": form.z_norm,
            "unit_norm": form.unit,
            "variance": keys.variance,
            **dict.fromkeys(("recall", "mrr", "tokens_per_step", "mean_acceptance_rate")),
        }
        if queries:
            found = lists.nearest(keys.make, queries)
            row |= {"recall": recall(truth, found), "mrr": reciprocal_rank(truth, found)}
        # Codes always have unit length.
        if form.unit:
            memory = memory_of(texts, keys, vocabulary)
            result = drafted(DenseDrafter(memory), answers, rows)
            row["tokens_per_step"] = result.tokens_per_step
            row["mean_acceptance_rate"] = result.mean_acceptance_rate
        yield row


def _z_norm(states: Floats) -> Callable[[Floats], Floats]:
    """Whole states, z-normed and of unit length: the distance that keys stand in for."""
    mean, deviations = states.mean(axis=0), np.sqrt(states.var(axis=0) + EPSILON)

    def make(raw: Floats) -> Floats:
        normed = (raw - mean) / deviations
        unit: Floats = normed / np.linalg.norm(normed, axis=1, keepdims=True)
        return unit

    return make


SPARSE = ("prompt", "recycle", "crest")
"""The drafters that dense drafts are added to."""


def compare_drafters(
    texts: Sequence[StateText],
    stores: BenchStores,
    answers: Sequence[StateText],
    vocabulary: int,
    budgets: Sequence[int],
) -> Iterator[dict[str, object]]:
    """One row for each drafter and budget; `stores` hold the same `texts`."""
    states = np.concatenate([text.states for text in texts])
    memory = memory_of(texts, fit_keys(states, KeyForm(len(states))), vocabulary)
    rest = stores.rest
    makers: dict[str, Callable[[], Drafter]] = {
        "rest": lambda: RestDrafter(rest) if rest else CombinedDrafter([]),
        "crest": lambda: CombinedDrafter(make_drafters(["crest"], stores.resources)),
        "dense": lambda: DenseDrafter(memory),
        "prompt,recycle,crest": lambda: CombinedDrafter(make_drafters(SPARSE, stores.resources)),
        "prompt,recycle,crest,dense": lambda: CombinedDrafter(
            [*make_drafters(SPARSE, stores.resources), DenseDrafter(memory)]
        ),
    }
    for name, make in makers.items():
        for rows in budgets:
            result = drafted(make(), answers, rows)
            yield {
                "drafters": name,
                "rows": rows,
                "tokens_per_step": result.tokens_per_step,
                "mean_acceptance_rate": result.mean_acceptance_rate,
            }
