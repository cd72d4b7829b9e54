"""The resumable training loop, the losses and the optimiser.

Checkpoints (safetensors and JSON) are replaced atomically. The loss is a parameter, so the target
(next token) and the draft model (the target's distribution) share the loop.

The optimiser runs Muon on the matrices and AdamW on the rest, over float32 master weights of a
model that may be bf16. Muon: Keller Jordan, "Muon: An optimizer for hidden layers in neural
networks" (2024); the Newton-Schulz steps run on stacks of equal shape, in the model's dtype.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assets.recipe.batches import TrainingBatch, make_batches
from assets.recipe.chat_stream import EncodedChats
from assets.recipe.settings import Schedule, Shape
from datastores.errors import InputError
from engines.distillation.model import Llama

_LOG = logging.getLogger(__name__)
_SAVE_SECONDS = 240.0
_BATCH_TOKENS = {"cpu": 1536, "cuda": 49_152}
"""Maximum number of tokens in a forward pass.

On a CPU, large enough for efficient products and small enough that a step has several passes to
distribute over threads; on a GPU, large enough that kernels run longer than they take to launch."""

GUIDANCE_WEIGHT = 0.5
"""Weight of the guidance loss of one position, relative to one token."""

Loss = Callable[[Llama, TrainingBatch], Tensor]
"""The summed, weighted loss of a batch."""


@dataclass
class Progress:
    """The progress of a run, stored as JSON next to the weights."""

    tokens: int = 0
    updates: int = 0


def pick_device() -> tuple[torch.device, torch.dtype]:
    """CUDA in bf16 if available, else the CPU, in bf16 if it multiplies that natively."""
    if torch.cuda.is_available():
        return torch.device("cuda"), torch.bfloat16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.device("cpu"), torch.bfloat16 if native else torch.float32


def make_next_token_loss(shape: Shape) -> Loss:
    """Weighted cross entropy of the next token, plus the guidance loss of the guided heads.

    The logits are computed only where the weight is not zero.
    """

    def loss(model: Llama, batch: TrainingBatch) -> Tensor:
        wanted = {shape.chooser: batch.chosen} | dict.fromkeys(shape.copiers, batch.copied)
        hidden, missed = model.forward_guided(batch.ids, wanted if batch.guided else {})
        logits = model.logits(hidden.flatten(0, 1)[batch.rows])
        losses = torch.nn.functional.cross_entropy(logits, batch.targets, reduction="none")
        return (losses * batch.weights).sum() + GUIDANCE_WEIGHT * missed

    return loss


def distribute(batches: list[TrainingBatch], hands: int) -> list[list[TrainingBatch]]:
    """``batches`` in ``hands`` shares of about equal size, each with its largest batch first."""
    shares: list[list[TrainingBatch]] = [[] for _ in range(hands)]
    sizes = [0] * hands
    for batch in sorted(batches, key=lambda batch: -batch.tokens):
        least = sizes.index(min(sizes))
        shares[least].append(batch)
        sizes[least] += batch.tokens
    return shares


def rate_factor(schedule: Schedule, progress: Progress) -> float:
    """The factor on the learning rate: warm-up, plateau, then 1 - sqrt decay to zero.

    The decay is fast at first and slow at the end, and beats linear decay (Hägele et al., "Scaling
    Laws and Compute-Optimal Training Beyond Fixed Training Durations", 2024, section 4).
    """
    warm = min(1.0, (progress.updates + 1) / schedule.warm_steps)
    past = (progress.tokens / schedule.tokens - schedule.decay_from) / (1 - schedule.decay_from)
    return float(warm * (1 - min(1.0, max(0.0, past)) ** 0.5))


class TrainingRun:
    """A model in training, and the folder that holds its checkpoint."""

    def __init__(
        self, shape: Shape, folder: Path, weights: Mapping[str, Tensor] | None = None
    ) -> None:
        """``weights`` initialise a run without a checkpoint; None initialises it at random."""
        self.folder = folder
        self.device, self.dtype = pick_device()
        # cuDNN plans attention separately for each shape, and few shapes occur twice.
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.manual_seed(0)
        self.model = Llama(shape.llama)
        if weights is not None:
            self.model.load_state_dict(dict(weights))
        self.optimiser = Optimiser(self.model.to(self.device))
        self.model.to(self.dtype)
        self.progress = Progress()
        self.threads = 1
        if (folder / "progress.json").exists():
            self._restore()
        self.optimiser.parameters = dict(self.model.named_parameters())
        self.optimiser.publish()

    def train(
        self,
        steps: Iterator[EncodedChats],
        schedule: Schedule,
        loss: Loss,
        seconds: float = math.inf,
    ) -> None:
        """Train on ``steps`` until the schedule's tokens are seen or ``seconds`` have passed.

        ``steps`` begins with step ``progress.updates``. The checkpoint is written however training
        ends, also on an interrupt.
        """
        threads = torch.get_num_threads()
        self.threads = 1 if self.device.type == "cuda" else threads
        self.model.dropout = schedule.dropout
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(self.threads) as workers:
                self._loop(steps, schedule, loss, workers, time.monotonic() + seconds)
        finally:
            torch.set_num_threads(threads)
            self.save()

    def _loop(
        self,
        steps: Iterator[EncodedChats],
        schedule: Schedule,
        loss: Loss,
        workers: Executor,
        end: float,
    ) -> None:
        meter = ProgressMeter(schedule)
        saved = time.monotonic()
        while self.progress.tokens < schedule.tokens and time.monotonic() < end:
            value = self._update(next(steps), schedule, loss, workers)
            meter.show(self.progress, value)
            if time.monotonic() - saved > _SAVE_SECONDS:
                self.save()
                saved = time.monotonic()

    def _update(
        self, chats: EncodedChats, schedule: Schedule, loss: Loss, workers: Executor
    ) -> Tensor:
        """One step; returns its mean loss."""
        share = rate_factor(schedule, self.progress)
        batches = make_batches(chats, _BATCH_TOKENS[self.device.type])
        whole = float(sum(batch.weights.sum() for batch in batches)) or 1.0
        batches = [batch.to(self.device) for batch in batches]
        total = self._accumulate(batches, loss, whole, workers)
        self.optimiser.step(schedule.matrix_rate * share, schedule.other_rate * share, workers)
        self.progress.tokens += len(chats.ids)
        self.progress.updates += 1
        return total

    def _accumulate(
        self, batches: list[TrainingBatch], loss: Loss, whole: float, workers: Executor
    ) -> Tensor:
        """Sum the gradients of ``batches``, distributed over the threads; returns the mean loss.

        On a CPU, one thread per product is faster than several threads sharing each product. Each
        thread sums its own batches, since summing in the caller would make the threads wait. No
        value is read here, which would synchronise with the GPU.
        """
        parameters = list(self.model.parameters())

        def work(share: list[TrainingBatch]) -> tuple[Tensor, list[Tensor]]:
            total = torch.zeros((), device=self.device)
            sums = [torch.zeros_like(each, dtype=torch.float32) for each in parameters]
            for batch in share:
                value = loss(self.model, batch) / whole
                for held, gradient in zip(
                    sums, torch.autograd.grad(value, parameters), strict=True
                ):
                    held.add_(gradient)
                total += value.detach()
            return total, sums

        total = torch.zeros((), device=self.device)
        for value, sums in workers.map(work, distribute(batches, self.threads)):
            total += value
            for name, gradient in zip(self.optimiser.parameters, sums, strict=True):
                self.optimiser.add_gradient(name, gradient)
        return total

    def save(self) -> None:
        """Write the checkpoint; an interrupted write leaves the previous one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / "state.safetensors.new"
        save_file({name: part.cpu() for name, part in self.optimiser.state.items()}, fresh)
        os.replace(fresh, self.folder / "state.safetensors")
        fresh = self.folder / "progress.json.new"
        fresh.write_text(json.dumps(vars(self.progress)), encoding="utf-8")
        os.replace(fresh, self.folder / "progress.json")

    def _restore(self) -> None:
        self.progress = Progress(**json.loads((self.folder / "progress.json").read_text()))
        for name, part in load_file(self.folder / "state.safetensors").items():
            self.optimiser.state[name].copy_(part)
        self.optimiser.updates = self.progress.updates
        _LOG.info("resumed %s at %d tokens", self.folder.name, self.progress.tokens)


class ProgressMeter:
    """Logs a progress line every twenty updates."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.losses: list[Tensor] = []
        self.mark = (time.monotonic(), 0)

    def show(self, progress: Progress, loss: Tensor) -> None:
        """Record the loss of one update; log every twentieth time."""
        self.losses.append(loss)
        if len(self.losses) == 1:
            self.mark = (time.monotonic(), progress.tokens)
        if len(self.losses) % 20:
            return
        mean = sum(map(float, self.losses[-20:])) / 20
        now = time.monotonic()
        speed = (progress.tokens - self.mark[1]) / max(now - self.mark[0], 1e-9)
        left = (self.schedule.tokens - progress.tokens) / max(speed, 1.0) / 60
        _LOG.info(
            "%.2f M of %.2f M tokens, loss %.4f, %.0f tokens/s, %.0f min left",
            progress.tokens / 1e6,
            self.schedule.tokens / 1e6,
            mean,
            speed,
            left,
        )
        self.mark = (now, progress.tokens)


def load_frozen_target(weights: Mapping[str, Tensor], shape: Shape) -> Llama:
    """The target with ``weights``, frozen, on the training device and in its dtype."""
    device, dtype = pick_device()
    frozen_target = Llama(shape.llama)
    frozen_target.load_state_dict(dict(weights))
    frozen_target.requires_grad_(False)
    return frozen_target.to(device=device, dtype=dtype)


def make_distillation_loss(frozen_target: Llama) -> Loss:
    """Weighted cross entropy against the target's probabilities, summed over a batch."""

    def loss(draft_model: Llama, batch: TrainingBatch) -> Tensor:
        rows = batch.rows
        with torch.no_grad():
            wanted = frozen_target.logits(frozen_target(batch.ids).flatten(0, 1)[rows]).softmax(
                dim=-1
            )
        drafted = draft_model.logits(draft_model(batch.ids).flatten(0, 1)[rows]).log_softmax(dim=-1)
        return -((wanted * drafted).sum(dim=-1) * batch.weights).sum()

    return loss


def load_weights(folder: Path) -> dict[str, Tensor]:
    """The float32 weights of the checkpoint in ``folder``, by parameter name.

    Raises:
        InputError: there is no checkpoint.
    """
    path = folder / "state.safetensors"
    if not path.exists():
        raise InputError(f"{folder}: no checkpoint here; train this model first")
    state = load_file(path)
    prefix = "master."
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


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
and saturated attention hardly learns. Kimi Team, "Kimi K2" (2025), section 2.1, clips by the
observed attention logits; here the norms of the weights are clipped.
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
    """Clip, in place, each head of a query or key matrix (heads * 64, width) by its norm."""
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
