"""The block of an EAGLE-3 drafter as plain torch, for training (arXiv 2503.01840).

It has llama.cpp's `eagle3` graph (`src/models/eagle3.cpp`), without what a Llama does not need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from assets.recipe.eagle_data import CONTEXT
from engines.distillation.model import LlamaShape, rotary

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


class EagleBlock(nn.Module):
    """An EAGLE-3 drafter without embeddings and output matrix.

    Its heads share no keys and values: a token is read through them alone, beside the state, and a
    small target's few would tell too little of it.

    Args:
        target: the target's sizes.

    Attributes:
        scale: [3 · width], by which `fuse` divides its inputs. A Llama's few dominant dimensions
            would outweigh all others at a common learning rate. No part of the file: `fc` is
            divided by it there.
    """

    def __init__(self, target: LlamaShape) -> None:
        super().__init__()
        self.shape = shape = replace(target, kv_heads=target.heads)
        width, inner = shape.width, shape.heads * shape.head_size
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(3 * width))
        self.fc = nn.Parameter(torch.zeros(width, 3 * width))
        self.attn_norm, self.attn_norm_2 = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.ffn_norm, self.output_norm = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.attn_q, self.attn_k, self.attn_v = (
            nn.Parameter(torch.zeros(inner, 2 * width)) for _ in range(3)
        )
        self.attn_output = nn.Parameter(torch.zeros(width, inner))
        self.ffn_gate = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_up = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_down = nn.Parameter(torch.zeros(width, shape.hidden))
        self.cos, self.sin = rotary(shape.head_size, shape.rope_base, CONTEXT)

    @torch.no_grad()
    def start_linear(self, known: TextRows, output_norm: Tensor) -> None:
        """Begin as the linear map that predicts the next hidden state best.

        By least squares from the target's states and the token after them, which takes seconds and
        is right as often as after minutes of training. The token's part goes through the first half
        of the heads, which attend to the token itself, as their keys are their queries; all else
        adds nothing at first.

        Args:
            output_norm: the target's.
        """
        shape, width = self.shape, self.shape.width
        self.scale.copy_(known.inputs.square().mean(0).sqrt())
        inputs, tokens = known.inputs / self.scale, self._norm(known.embedded, self.attn_norm)
        given = torch.cat([inputs, tokens], dim=1)
        wanted = F.rms_norm(known.hidden / output_norm, (width,))
        gram = given.T @ given
        gram.diagonal().mul_(1.0 + RIDGE)
        best = STREAM * torch.linalg.solve(gram, given.T @ wanted).T
        self.fc.copy_(best[:, : 3 * width])
        self.output_norm.copy_(SOFTNESS * output_norm)
        for matrix in (self.attn_q, self.attn_k, self.attn_v, self.ffn_gate, self.ffn_up):
            matrix.normal_(std=0.02)
        own = (shape.heads + 1) // 2 * shape.head_size
        left, sizes, right = torch.linalg.svd(best[:, 3 * width :])
        share = sizes[:own].sqrt()
        self.attn_output[:, :own] = left[:, :own] * share
        spread = (SELF_SCORE / (width * shape.head_size**0.5)) ** 0.5
        for matrix in (self.attn_q, self.attn_k, self.attn_v):
            matrix[:own] = 0.0
        self.attn_v[:own, :width] = share[:, None] * right[:own]
        self.attn_q[:own, :width].normal_(std=spread)
        self.attn_k[:own] = self.attn_q[:own]

    def fuse(self, inputs: Tensor) -> Tensor:
        """The encoder: (batch, length, 3 · width) to (batch, length, width)."""
        return F.linear(inputs / self.scale, self.fc)

    def forward(
        self,
        embedded: Tensor,
        states: Tensor,
        roots: int,
        earlier: list[tuple[Tensor, Tensor]],
        hidden: Tensor,
    ) -> Tensor:
        """The states after tokens that are drafted behind each root.

        Args:
            embedded: (batch, rows, width), embeddings of the tokens; at first those of the text,
                the last `roots` of which are the roots.
            states: the same shape, the states before them.
            earlier: keys and values of the text and of each depth before, each (batch, heads, rows,
                size); this depth's are appended.
            hidden: (batch · heads, roots, text), minus infinity where a root may not attend.

        Returns:
            (batch, roots, width).
        """
        depth = len(earlier)
        pair = [self._norm(embedded, self.attn_norm), self._norm(states, self.attn_norm_2)]
        x = torch.cat(pair, dim=-1)
        first = hidden.shape[2] - roots + depth
        k = self._rotated(F.linear(x, self.attn_k), first if depth else 0)
        q = self._rotated(F.linear(x[:, -roots:], self.attn_q), first)
        earlier.append((k, self._heads(F.linear(x, self.attn_v))))
        mixed = self._attend(q, earlier, hidden).transpose(1, 2).flatten(2)
        inner = states[:, -roots:] + F.linear(mixed, self.attn_output)
        x = self._norm(inner, self.ffn_norm)
        gated = F.silu(F.linear(x, self.ffn_gate)) * F.linear(x, self.ffn_up)
        return inner + F.linear(gated, self.ffn_down)

    def said(self, states: Tensor, output: Tensor) -> Tensor:
        """Logits over the draft vocabulary."""
        return F.linear(self._norm(states, self.output_norm), output)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.shape.epsilon).to(x.dtype)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.shape.heads, -1).transpose(1, 2)

    def _rotated(self, x: Tensor, first: int) -> Tensor:
        """Heads of x, rotated to the positions from `first` on."""
        x = self._heads(x)
        half, places = x.shape[-1] // 2, slice(first, first + x.shape[2])
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos[places].to(x.dtype) + turned * self.sin[places].to(x.dtype)

    def _attend(self, q: Tensor, earlier: list[tuple[Tensor, Tensor]], hidden: Tensor) -> Tensor:
        """Attention to the text up to each root, and to the drafted tokens after it."""
        scale, (keys, values) = self.shape.head_size**-0.5, zip(*earlier, strict=True)
        text = torch.baddbmm(hidden, q.flatten(0, 1), keys[0].flatten(0, 1).mT, alpha=scale)
        scores = [text.view(*q.shape[:3], -1)]
        scores += [(q * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
        shares, length = torch.cat(scores, dim=-1).softmax(-1), hidden.shape[2]
        mixed: Tensor = shares[..., :length] @ values[0]
        for number, value in enumerate(values[1:]):
            mixed = mixed + shares[..., length + number, None] * value
        return mixed
