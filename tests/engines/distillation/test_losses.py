"""The losses: distances between distributions of which the likeliest tokens are known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engines.distillation.losses import LOSSES, MIN_LOG, acceptance, events, normalised


def _pair(seed: int, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(  # type: ignore[return-value]
        (torch.randn(6, 9, generator=generator) * spread).log_softmax(dim=1) for _ in range(2)
    )


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 2**16))
def test_a_loss_is_zero_where_both_agree_and_positive_elsewhere(name: str, seed: int) -> None:
    log_p, log_q = _pair(seed)
    assert LOSSES[name](log_p, log_p).abs().max().item() < 1e-5
    assert LOSSES[name](log_p, log_q).min().item() > 0


@pytest.mark.parametrize("name", LOSSES)
def test_following_the_gradient_raises_acceptance(name: str) -> None:
    log_p, start = _pair(3)
    logits = start.clone().requires_grad_()
    before = acceptance(log_p, logits.log_softmax(dim=1)).mean().item()
    for _ in range(200):
        loss = LOSSES[name](log_p, logits.log_softmax(dim=1)).sum()
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= 0.2 * gradient
    assert acceptance(log_p, logits.log_softmax(dim=1)).mean().item() > before + 0.1


@pytest.mark.parametrize("name", LOSSES)
def test_probabilities_of_zero_give_finite_gradients(name: str) -> None:
    logits = torch.tensor([[800.0, -800.0, 0.0]], requires_grad=True)
    log_p = torch.tensor([[MIN_LOG, -1e-6, MIN_LOG]])
    log_q = events(logits, torch.tensor([[0, 1]]))
    (gradient,) = torch.autograd.grad(LOSSES[name](log_p, log_q).sum(), logits)
    assert gradient.isfinite().all()


def test_total_variation_is_the_rejected_share() -> None:
    log_p, log_q = _pair(5)
    torch.testing.assert_close(LOSSES["tv"](log_p, log_q), 1 - acceptance(log_p, log_q))
    torch.testing.assert_close(LOSSES["lk"](log_p, log_q), -acceptance(log_p, log_q).log())


def test_jsd_is_symmetric_and_bounded_by_ln_2() -> None:
    log_p, log_q = _pair(5, spread=30.0)
    loss = LOSSES["jsd"]
    torch.testing.assert_close(loss(log_p, log_q), loss(log_q, log_p))
    assert loss(log_p, log_q).max().item() <= 0.6932


@given(seed=st.integers(0, 2**16))
def test_events_are_the_tokens_and_all_others(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 50, generator=generator) * 3
    tokens = torch.stack([torch.randperm(50, generator=generator)[:5] for _ in range(4)])
    shares = logits.softmax(dim=1)
    wanted = shares.gather(1, tokens)
    found = events(logits, tokens).exp()
    torch.testing.assert_close(found[:, :5], wanted)
    torch.testing.assert_close(found[:, 5], 1 - wanted.sum(dim=1), rtol=1e-3, atol=2e-6)


@given(seed=st.integers(0, 2**16))
def test_merging_the_unlikely_tokens_never_increases_a_divergence(seed: int) -> None:
    log_p, log_q = _pair(seed)
    merged = [
        torch.cat((each[:, :4], each[:, 4:].logsumexp(dim=1, keepdim=True)), dim=1)
        for each in (log_p, log_q)
    ]
    for name, loss in LOSSES.items():
        assert (loss(*merged) <= loss(log_p, log_q) + 1e-5).all(), name


def test_stored_probabilities_sum_to_one_again() -> None:
    logs = torch.randn(3, 8).log_softmax(dim=1)
    stored = logs.half()
    back = normalised(stored[:, :7], stored[:, 7])
    torch.testing.assert_close(back.exp().sum(dim=1), torch.ones(3))
    torch.testing.assert_close(back, logs, atol=5e-3, rtol=5e-3)
