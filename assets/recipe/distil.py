"""The student's loss: the target's distribution, wherever a chat's answer stands.

Knows the target only as a frozen model that gives logits.
"""

from pathlib import Path

import torch
from torch import Tensor

from assets.recipe.batches import Piece
from assets.recipe.export import load_weights
from assets.recipe.model import Llama
from assets.recipe.settings import Shape
from assets.recipe.training import Loss, pick_device, select


def load_teacher(folder: Path, shape: Shape) -> Llama:
    """The target in ``folder``, frozen, on the training device and in its type."""
    device, dtype = pick_device()
    teacher = Llama(shape)
    teacher.load_state_dict(load_weights(folder))
    teacher.requires_grad_(False)
    return teacher.to(device=device, dtype=dtype)


def make_distillation_loss(teacher: Llama) -> Loss:
    """Weighted cross entropy against the teacher's probabilities, summed over a piece."""

    def loss(student: Llama, piece: Piece) -> Tensor:
        rows, _, weights = select(piece)
        with torch.no_grad():
            wanted = teacher.logits(teacher(piece.ids).flatten(0, 1)[rows]).softmax(dim=-1)
        drafted = student.logits(student(piece.ids).flatten(0, 1)[rows]).log_softmax(dim=-1)
        return -((wanted * drafted).sum(dim=-1) * weights).sum()

    return loss
