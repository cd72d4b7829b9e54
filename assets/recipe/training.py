"""The training loop: pieces in, checkpoints out; pausable, resumable.

Owns schedule, progress line and checkpoints (safetensors and JSON, swapped in atomically). What
the loss is comes from outside, so the target (next token) and the student (the target's
distribution) share the loop.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assets.recipe.batches import Corpus, Piece
from assets.recipe.model import Llama
from assets.recipe.optimiser import Optimiser
from assets.recipe.settings import Course, Shape

_LOG = logging.getLogger(__name__)
_SAVE_SECONDS = 240.0

GUIDANCE = 0.5
"""Weight of one guided look beside that of one token."""

Loss = Callable[[Llama, Piece], Tensor]
"""Summed, weighted loss of a piece."""


@dataclass
class Progress:
    """Where a run stands; saved beside the weights."""

    tokens: int = 0
    pieces: int = 0
    updates: int = 0


def pick_device() -> tuple[torch.device, torch.dtype]:
    """CUDA in bf16 where there is one; else the CPU, in bf16 where it multiplies that natively."""
    if torch.cuda.is_available():
        return torch.device("cuda"), torch.bfloat16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.device("cpu"), torch.bfloat16 if native else torch.float32


def next_token_loss(model: Llama, piece: Piece) -> Tensor:
    """Weighted cross entropy of the next token, and what the guided heads miss.

    Computed only where the weight is not zero.
    """
    rows, targets, weights = select(piece)
    shape = model.shape
    wanted = {shape.chooser: piece.chosen} | dict.fromkeys(shape.copiers, piece.copied)
    hidden, missed = model.guided(piece.ids, wanted if (piece.chosen >= 0).any() else {})
    logits = model.logits(hidden.flatten(0, 1)[rows])
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() + GUIDANCE * missed


def select(piece: Piece) -> tuple[Tensor, Tensor, Tensor]:
    """Flat positions with a weight, the tokens that follow them, and the weights; each (n,)."""
    flat = piece.weights.flatten()
    rows = flat.nonzero().squeeze(1)
    return rows, piece.ids.flatten()[rows + 1], flat[rows]


def deal(pieces: list[Piece], hands: int) -> list[list[Piece]]:
    """``pieces`` in ``hands`` shares of about equal size, the largest dealt first."""
    shares: list[list[Piece]] = [[] for _ in range(hands)]
    sizes = [0] * hands
    for piece in sorted(pieces, key=lambda piece: -piece.tokens):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += piece.tokens
    return shares


def rate_share(course: Course, progress: Progress) -> float:
    """The share of the full rate due now: warm-up, plateau, then one less a root, down to zero.

    The root falls fast at first and ends slowly, and beats a line (Hägele et al., "Scaling Laws and
    Compute-Optimal Training Beyond Fixed Training Durations", 2024, section 4).
    """
    warm = min(1.0, (progress.updates + 1) / course.warm_steps)
    past = (progress.tokens / course.tokens - course.decay_from) / (1 - course.decay_from)
    return float(warm * (1 - min(1.0, max(0.0, past)) ** 0.5))


class Run:
    """A model in training, and the folder that holds its checkpoint."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        self.folder = folder
        self.device, self.dtype = pick_device()
        torch.manual_seed(0)
        self.model = Llama(shape)
        self.optimiser = Optimiser(self.model.to(self.device))
        self.model.to(self.dtype)
        self.progress = Progress()
        self.threads = 1
        if (folder / "progress.json").exists():
            self._restore()
        self.optimiser.live = dict(self.model.named_parameters())
        self.optimiser.publish()

    def train(self, corpus: Corpus, course: Course, loss: Loss, seed: int) -> None:
        """Train until the course's tokens are seen, from wherever the checkpoint stands.

        However it ends, an interrupt included, the checkpoint is written.
        """
        threads = torch.get_num_threads()
        self.threads = 1 if self.device.type == "cuda" else threads
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(self.threads) as workers:
                self._loop(corpus.pieces(seed), course, loss, workers)
        finally:
            torch.set_num_threads(threads)
            self.save()

    def _loop(self, pieces: Iterator[Piece], course: Course, loss: Loss, workers: Executor) -> None:
        for _ in range(self.progress.pieces):
            next(pieces)
        meter = Meter(course)
        saved = time.monotonic()
        while self.progress.tokens < course.tokens:
            value = self._update(pieces, course, loss, workers)
            meter.show(self.progress, value)
            if time.monotonic() - saved > _SAVE_SECONDS:
                self.save()
                saved = time.monotonic()

    def _update(
        self, pieces: Iterator[Piece], course: Course, loss: Loss, workers: Executor
    ) -> float:
        """One step over as many pieces as make up the step's tokens; its mean loss."""
        share = rate_share(course, self.progress)
        chosen: list[Piece] = []
        while sum(piece.tokens for piece in chosen) < course.step_tokens:
            chosen.append(next(pieces).to(self.device))
        whole = float(sum(piece.weights.sum() for piece in chosen)) or 1.0
        total = self._accumulate(chosen, loss, whole, workers)
        self.optimiser.step(course.matrix_rate * share, course.other_rate * share, workers)
        self.progress.pieces += len(chosen)
        self.progress.tokens += sum(piece.tokens for piece in chosen)
        self.progress.updates += 1
        return total

    def _accumulate(
        self, pieces: list[Piece], loss: Loss, whole: float, workers: Executor
    ) -> float:
        """Add up the gradients of ``pieces``, dealt out to the threads; the mean loss.

        One-threaded products beat shared ones here. Each thread adds up its own pieces: were the
        sums made here, the threads would wait for them.
        """
        parameters = list(self.model.parameters())

        def work(share: list[Piece]) -> tuple[float, list[Tensor]]:
            total, sums = 0.0, [torch.zeros_like(each, dtype=torch.float32) for each in parameters]
            for piece in share:
                value = loss(self.model, piece) / whole
                for held, gradient in zip(
                    sums, torch.autograd.grad(value, parameters), strict=True
                ):
                    held.add_(gradient)
                total += value.item()
            return total, sums

        total = 0.0
        for value, sums in workers.map(work, deal(pieces, self.threads)):
            total += value
            for name, gradient in zip(self.optimiser.live, sums, strict=True):
                self.optimiser.add_gradient(name, gradient)
        return total

    def save(self) -> None:
        """Write the checkpoint; a run cut off half-way leaves the one before it."""
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


class Meter:
    """The progress line, every twenty updates."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.losses: list[float] = []
        self.mark = (time.monotonic(), 0)

    def show(self, progress: Progress, loss: float) -> None:
        """Take one update's loss; log when it is time."""
        self.losses.append(loss)
        if len(self.losses) == 1:
            self.mark = (time.monotonic(), progress.tokens)
        if len(self.losses) % 20:
            return
        now = time.monotonic()
        speed = (progress.tokens - self.mark[1]) / max(now - self.mark[0], 1e-9)
        left = (self.course.tokens - progress.tokens) / max(speed, 1.0) / 60
        mean = sum(self.losses[-20:]) / 20
        _LOG.info(
            "%.2f M of %.2f M tokens, loss %.4f, %.0f tokens/s, %.0f min left",
            progress.tokens / 1e6,
            self.course.tokens / 1e6,
            mean,
            speed,
            left,
        )
        self.mark = (now, progress.tokens)
