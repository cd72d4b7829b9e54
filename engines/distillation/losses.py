"""Training losses of the draft model: distances between its distribution q and the target's p.

The probabilities of the target's most probable tokens and the mass of all others are known, so both
distributions are compared over these tokens and one more event, "any other". Merging events never
increases a divergence (the data-processing inequality), and almost no mass is merged.

Every loss takes log-probabilities (..., events) and returns one value for each position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""(log p, log q), each (..., events) → loss (...); gradients flow through log q."""

MIN_LOG = -30.0
"""Below any stored probability; avoids -inf for a token without probability."""
MIN_REST = 1e-6
"""Least mass of all tokens but the most probable ones."""


def events(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probabilities of `tokens` and of any other token.

    Args:
        logits: (n, vocabulary).
        tokens: int64 (n, k), different in each row.

    Returns:
        (n, k + 1).
    """
    logs = logits.gather(1, tokens) - logits.logsumexp(dim=1, keepdim=True)
    # The rest is exact to a float32's last bits, which suffices; summing the other tokens would be
    # a second pass over the vocabulary.
    rest = (1.0 - logs.exp().sum(dim=1, keepdim=True)).clamp(min=MIN_REST).log()
    return torch.cat((logs, rest), dim=1).clamp(min=MIN_LOG)


def normalised(top_logprobs: Tensor, rest_logprob: Tensor) -> Tensor:
    """The target's events (n, k + 1) from stored log-probabilities (n, k) and (n,).

    They were rounded to 16 bits, so they are normalised again.
    """
    logs = torch.cat((top_logprobs, rest_logprob.unsqueeze(1)), dim=1).float()
    return logs.log_softmax(dim=1).clamp(min=MIN_LOG)


def acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ min(p, q): the probability that a token drawn from q is accepted (Leviathan et al. 2023,
    theorem 3.5), α of the online distillation paper."""
    return torch.minimum(log_p.exp(), log_q.exp()).sum(dim=-1)


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ p ln(p / q): makes q cover all of p."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ q ln(q / p): makes q avoid what p avoids."""
    return (log_q.exp() * (log_q - log_p)).sum(dim=-1)


def jensen_shannon(log_p: Tensor, log_q: Tensor) -> Tensor:
    """The mean of both divergences to the mixture of p and q."""
    mixed = torch.logaddexp(log_p, log_q) - torch.log(torch.tensor(2.0))
    return 0.5 * (forward_kl(log_p, mixed) + forward_kl(log_q, mixed))


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """½ Σ |p - q| = 1 - Σ min(p, q): the rejection rate."""
    return 0.5 * (log_p.exp() - log_q.exp()).abs().sum(dim=-1)


def log_acceptance(log_p: Tensor, log_q: Tensor) -> Tensor:
    """-ln Σ min(p, q) (LK losses, arXiv 2602.23881): the gradient of the total variation, scaled up
    where little is accepted."""
    return -acceptance(log_p, log_q).clamp(min=1e-9).log()


LOSSES: dict[str, Loss] = {
    "forward-kl": forward_kl,
    "reverse-kl": reverse_kl,
    "jsd": jensen_shannon,
    "tv": total_variation,
    "lk": log_acceptance,
}
"""By their names in settings and benchmarks."""
