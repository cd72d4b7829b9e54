"""A Llama, or a model of a similar `family`, as plain torch, for training.

Weights have the names and the layout of transformers' ``LlamaForCausalLM`` (rotary halves side by
side), which `weights` and the recipe's export rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from engines.distillation.family import LLAMA, Family

INITIAL_SPREAD = 0.02

NOWHERE = -1
"""Marks positions where a guided head may attend anywhere."""


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a Llama model.

    Attributes:
        width: size of the residual stream.
        hidden: neurons of the feed-forward layer.
        heads, kv_heads: query heads, and the key and value heads that they share.
        context: positions that the rotary table covers.
        tied: whether input and output embeddings are one matrix.
        biases: whether q, k and v have biases.
        rope_scale: divides the positions, except in local layers.
        window: tokens that local layers attend to.
        local_rope_base: the `rope_base` of local layers.
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
    family: Family = LLAMA
    biases: bool = False
    rope_scale: float = 1.0
    window: int = 0
    local_rope_base: float = 10000.0


def rotary(
    size: int, base: float, length: int, factors: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding of heads of `size` elements, each (length, size).

    ``factors``, one or (size / 2,), divide the frequencies, as in Llama 3.1 for long contexts.
    """
    rates = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size) / factors
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _guidance_loss(q: Tensor, k: Tensor, wanted: Tensor) -> Tensor:
    """The sum of -log of a head's attention to ``wanted`` (batch, length), where not `NOWHERE`.

    q and k are (batch, length, head_size). Supervision makes a head learn sooner where to attend:
    Garg et al., "Jointly Learning to Align and Translate with Transformer Models" (2019), section
    4.2.
    """
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    future = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(future, -torch.inf).flatten(0, 1)
    return F.cross_entropy(scores, wanted.flatten(), ignore_index=NOWHERE, reduction="sum")


def _attend(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Causal attention: q (batch, heads, length, head_size), k and v the same or with fewer heads;
    to the last ``window`` tokens if it is not 0.

    Separate products in bf16 on a CPU take a half to a fifth of the fused kernel's time, forward
    and backward together.
    """
    shared, length = k.shape[1] != q.shape[1], q.shape[2]
    if 0 < window < length:
        near = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        near = near.triu(1 - window)
        return F.scaled_dot_product_attention(q, k, v, near, enable_gqa=shared)
    if shared or q.device.type != "cpu" or q.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
    heads = [each.flatten(0, 1) for each in (q, k, v)]
    future = q.new_full((length, length), -torch.inf).triu(1)
    scores = torch.baddbmm(future, heads[0], heads[1].mT, alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(dim=-1), heads[2]).view(q.shape)


class Layer(nn.Module):
    """One block: attention, then SwiGLU, each after an RMS norm.

    ``place`` is its number, which decides whether it is local.
    """

    def __init__(self, shape: LlamaShape, place: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.is_local = shape.family.is_local(place)
        width, hidden = shape.width, shape.hidden
        inner, shared = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.input_layernorm = nn.Parameter(torch.ones(width))
        self.post_attention_layernorm = nn.Parameter(torch.ones(width))
        self.q_proj = _matrix(inner, width)
        self.k_proj, self.v_proj = (_matrix(shared, width) for _ in range(2))
        self.o_proj = _matrix(width, inner)
        self.gate_proj, self.up_proj = (_matrix(hidden, width) for _ in range(2))
        self.down_proj = _matrix(width, hidden)
        if shape.biases:
            self.q_bias = nn.Parameter(torch.zeros(inner))
            self.k_bias, self.v_bias = (nn.Parameter(torch.zeros(shared)) for _ in range(2))
        if shape.family.head_norms:
            self.q_norm, self.k_norm = (nn.Parameter(torch.ones(shape.head_size)) for _ in range(2))
        if shape.family.output_norms:
            self.attention_output_norm = nn.Parameter(torch.ones(width))
            self.feedforward_output_norm = nn.Parameter(torch.ones(width))

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        wanted: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, Tensor]:
        """Map (batch, length, width) to the same shape, with ``dropout`` on both halves' outputs.

        Also returns the guidance loss of the first head for ``wanted`` (`_guidance_loss`).
        """
        batch, length, _ = x.shape
        shape = self.shape
        q, k, v = self._heads(self._norm(x, self.input_layernorm))
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        missed = x.new_zeros(()) if wanted is None else _guidance_loss(q[:, 0], k[:, 0], wanted)
        mixed = _attend(q, k, v, shape.window if self.is_local else 0)
        attended = F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), self.o_proj)
        if shape.family.output_norms:
            attended = self._norm(attended, self.attention_output_norm)
        x = x + F.dropout(attended, dropout)
        added = self._feed_forward(self._norm(x, self.post_attention_layernorm))
        if shape.family.output_norms:
            added = self._norm(added, self.feedforward_output_norm)
        return x + F.dropout(added, dropout), missed

    def _heads(self, normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v before they are rotated, each (batch, heads, length, head_size)."""
        shape = self.shape
        biases = torch.cat((self.q_bias, self.k_bias, self.v_bias)) if shape.biases else None
        joint = F.linear(normed, torch.cat((self.q_proj, self.k_proj, self.v_proj)), biases)
        heads = joint.view(*normed.shape[:2], -1, shape.head_size).transpose(1, 2)
        first, last = shape.heads, shape.heads + shape.kv_heads
        q, k, v = heads[:, :first], heads[:, first:last], heads[:, last:]
        if shape.family.head_norms:
            q, k = self._norm(q, self.q_norm), self._norm(k, self.k_norm)
        return q, k, v

    def _feed_forward(self, normed: Tensor) -> Tensor:
        gate, up = F.linear(normed, torch.cat((self.gate_proj, self.up_proj))).chunk(2, dim=-1)
        opened = F.gelu(gate, approximate="tanh") if self.shape.family.gelu else F.silu(gate)
        return F.linear(opened * up, self.down_proj)

    def _norm(self, x: Tensor, scale: Tensor) -> Tensor:
        return F.rms_norm(x, scale.shape, scale, self.shape.epsilon)


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns) * INITIAL_SPREAD)


class Llama(nn.Module):
    """The model; ``dropout`` applies to the outputs of the layers, for training on questions that
    are repeated often."""

    cos: Tensor
    sin: Tensor
    local_cos: Tensor
    local_sin: Tensor

    def __init__(self, shape: LlamaShape, rope_factors: Tensor | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = 0.0
        self.embed_tokens = _matrix(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, place) for place in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.lm_head: nn.Parameter | None = (
            None if shape.tied else _matrix(shape.vocabulary, shape.width)
        )
        factors = shape.rope_scale if rope_factors is None else rope_factors
        cos, sin = rotary(shape.head_size, shape.rope_base, shape.context, factors)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        if shape.family.whole_every:
            cos, sin = rotary(shape.head_size, shape.local_rope_base, shape.context)
        self.register_buffer("local_cos", cos, persistent=False)
        self.register_buffer("local_sin", sin, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (batch, length) to final hidden states (batch, length, width), after the norm."""
        return self.forward_guided(ids, {})[0]

    def forward_guided(self, ids: Tensor, wanted: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
        """The result of `forward`, and the guidance loss.

        ``wanted``: by layer, the index its first head should attend to, (batch, length), or
        `NOWHERE`.
        """
        x = F.embedding(ids, self.embed_tokens)
        if self.shape.family.scaled_embeddings:
            x = x * self.shape.width**0.5
        length = ids.shape[1]
        missed = x.new_zeros(())
        for number, layer in enumerate(self.layers):
            cos, sin = (self.local_cos, self.local_sin) if layer.is_local else (self.cos, self.sin)
            x, more = layer(x, cos[:length], sin[:length], wanted.get(number), self.dropout)
            missed = missed + more
        return F.rms_norm(x, (self.shape.width,), self.norm, self.shape.epsilon), missed

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., width) to float32 logits (..., vocabulary)."""
        output = self.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(hidden, output).float()
