"""How the recipe's EAGLE-3 drafter begins: as the best linear guess."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engines.distillation.eagle_block import EagleBlock
from engines.distillation.model import LlamaShape

RIDGE = 1e-3
STREAM, SOFTNESS = 20.0, 0.7
"""Size of the residual stream at first, so that a common learning rate suits all matrices, and of
the logits beside those of the target, since a linear guess is less certain."""
SELF_SCORE = 30.0
"""Attention score of a token with itself at first; that with another is half of it at most."""


@dataclass(frozen=True)
class TextRows:
    """Rows of texts, from whose states and next token the state after that is to be predicted.

    Attributes:
        inputs: [rows, 3 · width], what the target hands over.
        embedded: [rows, width], the next token's embedding.
        hidden: [rows, width], the target's last hidden state at that token.
    """

    inputs: Tensor
    embedded: Tensor
    hidden: Tensor


def empty_block(target: LlamaShape) -> EagleBlock:
    """A block of its target's sizes, but for its heads, which share no keys and values: a token is
    read through them alone, beside the state, and a small target's few would tell too little."""
    return EagleBlock(replace(target, kv_heads=target.heads), target.width)


@torch.no_grad()
def start_linear(block: EagleBlock, known: TextRows, output_norm: Tensor) -> None:
    """Begin as the linear map that predicts the next hidden state best.

    By least squares from the target's states and the token after them, which takes seconds and is
    right as often as after minutes of training. The token's part goes through the first half of the
    heads, which attend to the token itself, as their keys are their queries; all else adds nothing
    at first.

    Args:
        block: of `empty_block`.
        output_norm: the target's.
    """
    shape, width = block.shape, block.shape.width
    block.scale.copy_(known.inputs.square().mean(0).sqrt())
    inputs, tokens = known.inputs / block.scale, block.normed(known.embedded, block.attn_norm)
    given = torch.cat([inputs, tokens], dim=1)
    wanted = F.rms_norm(known.hidden / output_norm, (width,))
    gram = given.T @ given
    gram.diagonal().mul_(1.0 + RIDGE)
    best = STREAM * torch.linalg.solve(gram, given.T @ wanted).T
    block.fc.copy_(best[:, : 3 * width])
    block.output_norm.copy_(SOFTNESS * output_norm)
    for matrix in (block.attn_q, block.attn_k, block.attn_v, block.ffn_gate, block.ffn_up):
        matrix.normal_(std=0.02)
    own = (shape.heads + 1) // 2 * shape.head_size
    left, sizes, right = torch.linalg.svd(best[:, 3 * width :])
    share = sizes[:own].sqrt()
    block.attn_output[:, :own] = left[:, :own] * share
    spread = (SELF_SCORE / (width * shape.head_size**0.5)) ** 0.5
    for matrix in (block.attn_q, block.attn_k, block.attn_v):
        matrix[:own] = 0.0
    block.attn_v[:own, :width] = share[:, None] * right[:own]
    block.attn_q[:own, :width].normal_(std=spread)
    block.attn_k[:own] = block.attn_q[:own]
