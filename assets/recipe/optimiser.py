"""Muon on the matrices, AdamW on the rest, over float32 master weights of a model that may be bf16.

Owns the update and its state. Muon: Keller Jordan, "Muon: An optimizer for hidden layers in neural
networks" (2024); the Newton-Schulz steps run on stacks of equal shape, in the model's own type.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Executor

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_MOMENTUM = 0.95
_BETAS = (0.9, 0.95)
_TINY = 1e-8
_STACK = 8
_HEAD = 64
MAX_HEAD_NORM = 12.0
"""The largest Frobenius norm of a head's query or key matrix.

Muon's steps do not shrink with their gradient, so these matrices grow until attention saturates,
and saturated attention hardly learns. Kimi Team, "Kimi K2" (2025), section 2.1, clips the product
of the two where it sees their logits; here the weights themselves are clipped.
"""


def orthogonalise(stack: Tensor) -> Tensor:
    """Move the singular values of matrices (n, rows, columns) close to one."""
    a, b, c = _COEFFICIENTS
    tall = stack.shape[-2] > stack.shape[-1]
    x: Tensor = stack.mT if tall else stack
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


def clip_heads(matrix: Tensor) -> None:
    """Scale down, in place, each head of a query or key matrix (heads * 64, width) if too large."""
    heads = matrix.view(-1, _HEAD, matrix.shape[1])
    norms = heads.norm(dim=(1, 2), keepdim=True)
    heads.mul_((MAX_HEAD_NORM / norms).clamp(max=1.0))


class Optimiser:
    """Master weights and moments of a model's parameters; ``state`` is the checkpoint."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = dict(model.named_parameters())
        self.state: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            self.state[f"master.{name}"] = parameter.detach().float().clone()
            self.state[f"first.{name}"] = torch.zeros_like(parameter, dtype=torch.float32)
            if not _is_matrix(name):
                self.state[f"second.{name}"] = torch.zeros_like(parameter, dtype=torch.float32)
        self.gradients: dict[str, Tensor] = {}
        self.updates = 0

    def step(self, matrix_rate: float, other_rate: float, workers: Executor) -> None:
        """One update from the gradients added since the last one, which are cleared.

        The orthogonalisation is distributed over ``workers``, a few matrices each.
        """
        self.updates += 1
        groups: dict[torch.Size, list[str]] = defaultdict(list)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if _is_matrix(name):
                    groups[parameter.shape].append(name)
                else:
                    self._adam(name, other_rate)
            stacks = [stack for names in groups.values() for stack in batched(names)]
            list(workers.map(lambda names: self._muon(names, matrix_rate), stacks))
            self.publish()
        self.gradients.clear()

    def publish(self) -> None:
        """Copy the master weights into the model, rounding to its dtype."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.state[f"master.{name}"])

    def add_gradient(self, name: str, gradient: Tensor) -> None:
        """Add to the gradient that the next `step` uses, in float32."""
        held = self.gradients.get(name)
        self.gradients[name] = gradient.float() if held is None else held.add_(gradient)

    def _gradient(self, name: str) -> Tensor:
        return self.gradients[name]

    @torch.no_grad()
    def _muon(self, names: list[str], rate: float) -> None:
        pushed = []
        for name in names:
            gradient, moment = self._gradient(name), self.state[f"first.{name}"]
            moment.lerp_(gradient, 1 - _MOMENTUM)
            pushed.append(gradient.lerp(moment, _MOMENTUM))
        updates = orthogonalise(torch.stack(pushed).to(self.parameters[names[0]].dtype)).float()
        rows, columns = updates.shape[-2:]
        scale = rate * max(1.0, rows / columns) ** 0.5
        for name, update in zip(names, updates, strict=True):
            master = self.state[f"master.{name}"].sub_(update, alpha=scale)
            if name.endswith(("q_proj", "k_proj")):
                clip_heads(master)

    def _adam(self, name: str, rate: float) -> None:
        gradient = self._gradient(name)
        first, second = self.state[f"first.{name}"], self.state[f"second.{name}"]
        first.lerp_(gradient, 1 - _BETAS[0])
        second.lerp_(gradient.square(), 1 - _BETAS[1])
        corrected = first / (1 - _BETAS[0] ** self.updates)
        spread = (second / (1 - _BETAS[1] ** self.updates)).sqrt() + _TINY
        self.state[f"master.{name}"].sub_(rate * corrected / spread)


def batched(names: list[str]) -> list[list[str]]:
    """``names`` in groups of `_STACK`."""
    return [names[first : first + _STACK] for first in range(0, len(names), _STACK)]


def _is_matrix(name: str) -> bool:
    return name.endswith("_proj")
