"""The draw: right distribution, keyed noise, and truncation in llama.cpp's order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engines.sampler import (
    Sampling,
    best,
    candidates,
    draw_gap,
    leaders,
    make_sampler,
    make_scores,
    noise,
    penalise,
)
from engines.target import Floats

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def row(size: int = 12, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32) * 2


@given(
    st.sampled_from([5, 63, 2048, 4096, 5003]),
    st.sampled_from([1, 2, 8, 40]),
    st.integers(0, 10_000),
)
def test_best_equals_a_full_sort(size: int, count: int, seed: int) -> None:
    values = row(size, seed)
    expected = np.argsort(-values, kind="stable")[:count]
    assert best(values, count).tolist() == expected.tolist()


@given(
    st.integers(1, 300).flatmap(
        lambda size: arrays(
            np.float32, size, elements=st.sampled_from([0.0, -1.0, 2.0, -np.inf, np.inf, np.nan])
        )
    ),
    st.integers(1, 50),
)
def test_best_breaks_ties_by_index_and_puts_nan_last(values: Floats, count: int) -> None:
    expected = np.argsort(-values, kind="stable")[:count]
    assert best(values, count).tolist() == expected.tolist()


@given(
    arrays(np.float32, 200, elements=st.floats(-8, 8, width=32)),
    st.integers(1, 20),
    st.sampled_from([0.5, 4.0, 100.0]),
)
def test_leaders_are_the_best_within_the_gap(values: Floats, count: int, within: float) -> None:
    order = np.argsort(-values, kind="stable")
    near = [index for index in order if values[index] > values.max() - within]
    found, theirs = leaders(values, count, within)
    assert found.tolist() == near[:count]
    assert theirs.tolist() == values[near[:count]].tolist()


def test_a_row_of_nan_has_no_leaders() -> None:
    assert leaders(np.full(9, np.nan, np.float32), 4, 4.0)[0].size == 0


def test_draws_follow_the_distribution() -> None:
    logits = row()
    draw = make_sampler(OPEN)
    count = 40_000
    drawn = np.bincount([draw(logits, offset, ()) for offset in range(count)], minlength=12)
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    deviation = np.abs(drawn - count * expected) / np.sqrt(count * expected * (1 - expected))
    assert deviation.max() < 4.5


def test_the_draw_depends_on_nothing_but_seed_offset_and_logits() -> None:
    logits = row(4096)
    first = make_sampler(Sampling(0.8, seed=3))
    again = make_sampler(Sampling(0.8, seed=3))
    other = make_sampler(Sampling(0.8, seed=4, top_k=0, top_p=1, min_p=0))
    one = [first(logits, offset, ()) for offset in range(200)]
    assert [again(logits, offset, ()) for offset in reversed(range(200))][::-1] == one
    assert [other(logits, offset, ()) for offset in range(200)] != one


@given(
    st.integers(0, 1000),
    st.sampled_from([0.5, 2.0, 6.0]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.sampled_from([1.0, 1.3]),
)
def test_the_draw_is_the_candidate_with_the_largest_score(
    seed: int, spread: float, min_p: float, penalty: float
) -> None:
    logits = row(600, seed) * np.float32(spread)
    sampling = Sampling(0.8, min_p=min_p, repeat_penalty=penalty, seed=seed)
    tokens, scores = make_scores(sampling)(penalise(logits, (3, 5), sampling), 7)
    assert make_sampler(sampling)(logits, 7, (3, 5)) == tokens[scores.argmax()]


def test_noise_is_standard_gumbel_and_independent_of_the_set() -> None:
    tokens = np.arange(200_000)
    values = noise(11, 5, tokens)
    assert values.mean() == pytest.approx(0.5772, abs=0.01)
    assert values.var() == pytest.approx(np.pi**2 / 6, abs=0.03)
    assert noise(11, 5, tokens[100:105]).tolist() == values[100:105].tolist()
    assert abs(np.corrcoef(values, noise(11, 6, tokens))[0, 1]) < 0.01


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_two_models_that_share_the_noise_draw_the_same_token_as_often_as_said(
    temperature: float,
) -> None:
    generator = np.random.default_rng(7)
    target = generator.normal(0, 1.5, 12).astype(np.float32)
    drafting = target + generator.normal(0, 1, 12).astype(np.float32)
    draw = make_sampler(Sampling(temperature, top_k=0, top_p=1.0, min_p=0.0, seed=9))
    draws = 6000
    same = sum(draw(target, at, ()) == draw(drafting, at, ()) for at in range(draws)) / draws
    p, q = (np.exp(row.astype(np.float64) / temperature) for row in (target, drafting))
    p, q = p / p.sum(), q / q.sum()
    expected = sum(
        1.0 / np.maximum(p / one, q / other).sum() for one, other in zip(p, q, strict=True)
    )
    overlap = np.minimum(p, q).sum()
    assert same == pytest.approx(expected, abs=0.02)
    assert overlap / (2.0 - overlap) + 0.02 < expected < overlap - 0.02


def test_greedy_takes_the_largest_and_reports_the_gap() -> None:
    logits = np.array([1.0, 4.0, 3.5, -2.0], np.float32)
    assert make_sampler(Sampling(0.0))(logits, 0, ()) == 1
    assert draw_gap(Sampling(0.0), logits, 0, ()) == 0.5
    assert logits.tolist() == [1.0, 4.0, 3.5, -2.0]


def test_truncation_keeps_what_llama_cpp_would() -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.06, 0.04])
    logits = np.log(probabilities).astype(np.float32)
    assert candidates(logits, Sampling(top_k=3, top_p=1.0, min_p=0.0)).tolist() == [0, 1, 2]
    assert candidates(logits, Sampling(top_k=0, top_p=0.7, min_p=0.0)).tolist() == [0, 1]
    assert candidates(logits, Sampling(top_k=0, top_p=0.76, min_p=0.0)).tolist() == [0, 1, 2]
    assert candidates(logits, Sampling(top_k=0, top_p=1.0, min_p=0.2)).tolist() == [0, 1, 2]
    # top-p is relative to what top-k left: 0.5 / 0.75 is less than 0.8, so both stay.
    assert candidates(logits, Sampling(top_k=2, top_p=0.8, min_p=0.0)).tolist() == [0, 1]
    assert candidates(logits, Sampling(top_k=1, top_p=0.1, min_p=0.9)).tolist() == [0]


@given(
    st.sampled_from([3, 127, 600, 4096]),
    st.integers(0, 1000),
    st.sampled_from([0.1, 1.0, 4.0]),
    st.sampled_from([0, 0, 1, 40, 5000]),
    st.sampled_from([0.0, 0.3, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 1e-4, 0.05, 1.0]),
)
def test_truncation_equals_that_of_the_whole_distribution(
    size: int, seed: int, spread: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = row(size, seed) * np.float32(spread)
    order = np.argsort(-logits, kind="stable")[: top_k or size]
    weights = np.exp(logits[order] - logits.max(), dtype=np.float64)
    before = np.cumsum(weights) - weights
    inside = weights >= min_p
    if top_p < 1.0:
        inside &= before < top_p * weights.sum() * (1 - 1e-9)
    kept = candidates(logits, Sampling(1.0, top_k=top_k, top_p=top_p, min_p=min_p))
    if top_k or top_p < 1.0 or min_p > 0.0:
        assert kept.tolist() == order[: max(int(inside.sum()), 1)].tolist()
    else:
        assert kept.tolist() == list(range(size))


def test_the_penalty_applies_to_recent_tokens_only() -> None:
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    draw = make_sampler(Sampling(0.0, repeat_penalty=1.5, repeat_window=2))
    assert draw(logits, 0, [0, 1, 2]) == 0
    assert draw(logits, 0, [1, 2, 0]) == 1
    assert logits.tolist() == pytest.approx([2.0, 1.9, -1.0])
