"""A Llama model as plain torch, for training.

Owns the forward pass. Weights keep the names and the layout of transformers' ``LlamaForCausalLM``
(rotary halves side by side), which `weights` and the recipe's export rely on. Knows nothing of
chats and files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

INITIAL_SPREAD = 0.02

NOWHERE = -1
"""In place of the position that a head should attend to: the head is free there."""


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a Llama model.

    Attributes:
        width: of the residual stream. hidden: of the feed-forward layer.
        heads, kv_heads: query heads, and the key and value heads that they share.
        head_size: elements of one head.
        context: tokens that the rotary table covers.
        tied: whether input and output embeddings are one matrix.
    """

    layers: int
    width: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    rope_base: float = 10000.0
    epsilon: float = 1e-5
    tied: bool = True


def rotary(shape: LlamaShape, length: int, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each (length, head_size).

    ``factors`` (head_size / 2,) divide the frequencies, as Llama 3.1 does for long contexts.
    """
    size = shape.head_size
    rates = shape.rope_base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    rates = rates if factors is None else rates / factors
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _guidance_loss(q: Tensor, k: Tensor, wanted: Tensor) -> Tensor:
    """The sum of -log of a head's attention to ``wanted`` (batch, length), where not `NOWHERE`.

    q and k are (batch, length, head_size). A supervised head learns where to attend sooner than an
    unsupervised one: Garg et al., "Jointly Learning to Align and Translate with Transformer Models"
    (2019), section 4.2.
    """
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(future, -torch.inf).flatten(0, 1)
    return F.cross_entropy(scores, wanted.flatten(), ignore_index=NOWHERE, reduction="sum")


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention: q (batch, heads, length, head_size), k and v the same or with fewer heads.

    In bf16 on a CPU, forward and backward together take a half to a fifth of the fused kernel's
    time as products of their own.
    """
    shared = k.shape[1] != q.shape[1]
    if shared or q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
    heads = [each.flatten(0, 1) for each in (q, k, v)]
    future = q.new_full((q.shape[2], q.shape[2]), -torch.inf).triu(1)
    scores = torch.baddbmm(future, heads[0], heads[1].mT, alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(dim=-1), heads[2]).view(q.shape)


class Layer(nn.Module):
    """One block: attention, then SwiGLU, each after an RMS norm."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        width, hidden = shape.width, shape.hidden
        inner, shared = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.input_layernorm = nn.Parameter(torch.ones(width))
        self.post_attention_layernorm = nn.Parameter(torch.ones(width))
        self.q_proj = _matrix(inner, width)
        self.k_proj, self.v_proj = (_matrix(shared, width) for _ in range(2))
        self.o_proj = _matrix(width, inner)
        self.gate_proj, self.up_proj = (_matrix(hidden, width) for _ in range(2))
        self.down_proj = _matrix(width, hidden)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        wanted: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """(batch, length, width) to the same; one product for q, k and v, one for gate and up.

        Of what either half adds, the fraction ``dropout`` is left out, at random. Also returns the
        guidance loss of the first head for ``wanted`` (`_guidance_loss`).
        """
        batch, length, _ = x.shape
        shape = self.shape
        normed = self._norm(x, self.input_layernorm)
        joint = F.linear(normed, torch.cat((self.q_proj, self.k_proj, self.v_proj)))
        heads = joint.view(batch, length, -1, shape.head_size).transpose(1, 2)
        first, last = shape.heads, shape.heads + shape.kv_heads
        q, k, v = heads[:, :first], heads[:, first:last], heads[:, last:]
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        missed = x.new_zeros(()) if wanted is None else _guidance_loss(q[:, 0], k[:, 0], wanted)
        mixed = _attend(q, k, v)
        attended = F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), self.o_proj)
        x = x + F.dropout(attended, dropout)
        normed = self._norm(x, self.post_attention_layernorm)
        gate, up = F.linear(normed, torch.cat((self.gate_proj, self.up_proj))).chunk(2, dim=-1)
        return x + F.dropout(F.linear(F.silu(gate) * up, self.down_proj), dropout), missed

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.width,), scale, self.shape.epsilon)


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) * INITIAL_SPREAD)


class Llama(nn.Module):
    """The model; input and output embeddings are one matrix where the shape says so.

    ``dropout`` is the fraction of what a layer adds that is left out, at random: for training on
    questions that come again and again.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: LlamaShape, rope_factors: Tensor | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = 0.0
        self.embed_tokens = _matrix(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.lm_head: nn.Parameter | None = (
            None if shape.tied else _matrix(shape.vocabulary, shape.width)
        )
        cos, sin = rotary(shape, shape.context, rope_factors)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (batch, length) to final hidden states (batch, length, width), after the norm."""
        return self.forward_guided(ids, {})[0]

    def forward_guided(self, ids: Tensor, wanted: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
        """As `forward`, and the guidance loss.

        ``wanted``: by layer, the index its first head should attend to, (batch, length), or
        `NOWHERE`.
        """
        x = F.embedding(ids, self.embed_tokens)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        missed = x.new_zeros(())
        for number, layer in enumerate(self.layers):
            x, more = layer(x, cos, sin, wanted.get(number), self.dropout)
            missed = missed + more
        return F.rms_norm(x, (self.shape.width,), self.norm, self.shape.epsilon), missed

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., width) to float32 logits (..., vocabulary)."""
        output = self.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(hidden, output).float()
