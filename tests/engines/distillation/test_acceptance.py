"""α at a sampler's settings, against whole distributions truncated by the sampler itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from datastores.replay_buffer.record import TOP, ReplayRecord, question_key, thinned, top_of
from engines.distillation.acceptance import PREFERRED, WHOLE, acceptances, answer_acceptances
from engines.sampler import Sampling, candidates, make_sampler
from engines.target import Floats

Doubles = NDArray[np.float64]
ROWS, KEY = 4, question_key("why?")

settings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 5, 40, TOP, 100]),
    top_p=st.sampled_from([0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
)


def pair(seed: int, size: int) -> tuple[Floats, Floats]:
    """Logits of a target and of what drafts for it, which often prefer the same tokens."""
    generator = np.random.default_rng(seed)
    target = generator.normal(0, 3, (ROWS, size)).astype(np.float32)
    return target, target + generator.normal(0, 2, target.shape).astype(np.float32)


def known(logits: Floats) -> tuple[NDArray[np.int64], Doubles]:
    """What a record keeps of a target's logits, without the rounding to 16 bits."""
    top = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    kept = np.take_along_axis(shares, top, 1)
    rest = np.maximum(1.0 - kept.sum(axis=1, keepdims=True), 1e-20)
    return top, np.log(np.concatenate([kept, rest], axis=1))


def drawn(row: Floats, sampling: Sampling) -> Doubles:
    """The distribution that the sampler draws from, over the whole vocabulary."""
    shares = np.zeros(len(row))
    tokens = candidates(row, sampling)
    weights = np.exp((row[tokens].astype(np.float64) - row.max()) / sampling.temperature)
    shares[tokens] = weights / weights.sum()
    return shares


@given(seed=st.integers(0, 2**32), size=st.sampled_from([50, 300]), sampling=settings)
def test_it_is_the_overlap_of_what_both_are_drawn_from(
    seed: int, size: int, sampling: Sampling
) -> None:
    target, drafting = pair(seed, size)
    p = np.array([drawn(row, sampling) for row in target])
    assume((np.count_nonzero(p, axis=1) <= min(TOP, size)).all())
    assume(sampling.top_k <= TOP)  # beyond, top-p is taken of all tokens, whose mass is known
    q = np.array([drawn(row, sampling) for row in drafting])
    found = acceptances(*known(target), drafting, sampling)
    np.testing.assert_allclose(found, np.minimum(p, q).sum(axis=1), atol=1e-6)


@given(seed=st.integers(0, 2**32), sampling=settings)
def test_a_model_that_is_its_own_target_is_always_accepted(seed: int, sampling: Sampling) -> None:
    target, _ = pair(seed, TOP)
    np.testing.assert_allclose(acceptances(*known(target), target, sampling), 1.0, atol=1e-6)


@given(seed=st.integers(0, 2**32))
def test_tokens_beyond_the_known_ones_are_one_event(seed: int) -> None:
    target, drafting = pair(seed, 300)
    top, log_p = known(target)
    q = np.array([drawn(row, WHOLE) for row in drafting])
    kept = np.take_along_axis(q, top, 1)
    merged = np.concatenate([kept, 1.0 - kept.sum(axis=1, keepdims=True)], axis=1)
    wanted = np.minimum(np.exp(log_p), merged).sum(axis=1)
    np.testing.assert_allclose(acceptances(top, log_p, drafting, WHOLE), wanted, atol=1e-6)


@given(seed=st.integers(0, 2**32))
def test_at_temperature_0_it_is_1_where_both_prefer_the_same_token(seed: int) -> None:
    target, drafting = pair(seed, 80)
    found = acceptances(*known(target), drafting, PREFERRED)
    assert found.tolist() == (target.argmax(axis=1) == drafting.argmax(axis=1)).tolist()


def test_it_is_the_share_of_draws_that_an_optimal_coupling_accepts() -> None:
    """Checked against tokens that the sampler drew: their shares are p and q."""
    sampling = Sampling(temperature=0.7, seed=3)
    target, drafting = pair(2, 300)
    draws = 4000

    def shares(row: Floats) -> Doubles:
        draw = make_sampler(sampling)
        tokens = [draw(row, offset, ()) for offset in range(draws)]
        return np.bincount(tokens, minlength=len(row)) / draws

    wanted = [np.minimum(shares(p), shares(q)).sum() for p, q in zip(target, drafting, strict=True)]
    np.testing.assert_allclose(acceptances(*known(target), drafting, sampling), wanted, atol=0.03)


@pytest.mark.parametrize("sampling", [PREFERRED, WHOLE, Sampling()])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_not_numbers_are_not_measured(sampling: Sampling, wrong: float) -> None:
    target, drafting = pair(1, 300)
    drafting[1, 7] = wrong
    found = acceptances(*known(target), drafting, sampling)
    assert np.isnan(found).tolist() == [False, True, False, False]


def test_an_answer_is_measured_at_every_token() -> None:
    """By the stored probabilities, or else by the emitted token; whichever columns tokens have."""
    target, drafting = pair(5, 300)
    top, logprobs, rest = top_of(target)
    tokens = np.array([9, 9, *target.argmax(axis=1)], np.int32)
    stored = np.array([2, 4], np.int32)
    columns = top[[0, 2]], logprobs[[0, 2]], rest[[0, 2]]
    record = ReplayRecord(0, 1, 1.0, KEY, KEY, tokens, 2, stored, *columns)
    sampling = Sampling()
    q = np.array([drawn(row, sampling) for row in drafting])
    wanted = acceptances(*known(target), drafting, sampling)
    wanted[[1, 3]] = q[[1, 3], tokens[[3, 5]]]
    found = answer_acceptances(record, 2, drafting, sampling)
    np.testing.assert_allclose(found, wanted, atol=5e-3)
    np.testing.assert_array_equal(answer_acceptances(record, 3, drafting[1:], sampling), found[1:])
    order = np.random.default_rng(1).permutation(300)
    shuffled = np.empty_like(drafting)
    shuffled[:, order] = drafting
    again = answer_acceptances(record, 2, shuffled, sampling, order)
    np.testing.assert_allclose(again, found, atol=1e-9)
    alone = answer_acceptances(thinned(record, [False, False]), 2, drafting, sampling)
    np.testing.assert_allclose(alone, q[np.arange(ROWS), tokens[2:]], atol=1e-9)
