"""The block of an EAGLE-3 drafter as plain torch, for training (arXiv 2503.01840).

It has llama.cpp's `eagle3` graph (`src/models/eagle3.cpp`) without its options. As in the paper's
training-time test (section 3.2), training unrolls it for several tokens: from the second on, it
reads its own state in place of the target's and attends to the target's states up to the root and
to its own after it, as it does when it drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from engines.distillation.model import LlamaShape, rotary

DEPTHS, DECAY = 3, 0.8
"""Tokens drafted in training, and the weight of each beside that of the one before it."""


class EagleBlock(nn.Module):
    """An EAGLE-3 drafter without embeddings and output matrix.

    Args:
        shape: its sizes.
        reads: width of its target.
        factors: as in `rotary`.

    Attributes:
        scale: [3 · reads], by which `fuse` divides its inputs. A Llama's few dominant dimensions
            would outweigh all others at a common learning rate. No part of the file: `fc` is
            divided by it there.
    """

    def __init__(self, shape: LlamaShape, reads: int, factors: Tensor | float = 1.0) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        inner, shared = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(3 * reads))
        self.fc = nn.Parameter(torch.zeros(width, 3 * reads))
        self.attn_norm, self.attn_norm_2 = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.ffn_norm, self.output_norm = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.attn_q = nn.Parameter(torch.zeros(inner, 2 * width))
        self.attn_k, self.attn_v = (nn.Parameter(torch.zeros(shared, 2 * width)) for _ in range(2))
        self.attn_output = nn.Parameter(torch.zeros(width, inner))
        self.ffn_gate = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_up = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_down = nn.Parameter(torch.zeros(width, shape.hidden))
        self.cos, self.sin = rotary(shape.head_size, shape.rope_base, shape.context, factors)

    def fuse(self, inputs: Tensor) -> Tensor:
        """The encoder: (batch, length, 3 · reads) to (batch, length, width)."""
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
        pair = [self.normed(embedded, self.attn_norm), self.normed(states, self.attn_norm_2)]
        x = torch.cat(pair, dim=-1)
        first = hidden.shape[2] - roots + depth
        k = self._rotated(F.linear(x, self.attn_k), first if depth else 0)
        q = self._rotated(F.linear(x[:, -roots:], self.attn_q), first)
        v, times = self._heads(F.linear(x, self.attn_v)), self.shape.heads // self.shape.kv_heads
        earlier.append((k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)))
        mixed = self._attend(q, earlier, hidden).transpose(1, 2).flatten(2)
        inner = states[:, -roots:] + F.linear(mixed, self.attn_output)
        x = self.normed(inner, self.ffn_norm)
        gated = F.silu(F.linear(x, self.ffn_gate)) * F.linear(x, self.ffn_up)
        return inner + F.linear(gated, self.ffn_down)

    def said(self, states: Tensor, output: Tensor) -> Tensor:
        """Logits over the draft vocabulary, whose rows of the output matrix are `output`."""
        return F.linear(self.normed(states, self.output_norm), output)

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root mean square norm with a weight."""
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.shape.epsilon).to(x.dtype)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.shape.head_size).transpose(1, 2)

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


@dataclass(frozen=True)
class TextBatch:
    """Texts side by side, so that all answers begin in the same column.

    Row t of `inputs` and `attended` belongs to the token in column t + 1; what is drafted at depth
    d behind that root is compared with column t + 2 + d.

    Attributes:
        tokens: int64 [texts, columns + depths].
        inputs: [texts, columns - 1, 3 · reads].
        prompt: number of columns before the answers.
        starts, ends: int64 [texts], the columns that hold each text.
    """

    tokens: Tensor
    inputs: Tensor
    prompt: int
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(
        cls,
        texts: Sequence[NDArray[np.integer]],
        prompts: Sequence[int],
        inputs: Sequence[NDArray[np.floating]],
        depths: int,
    ) -> TextBatch:
        """Those `texts` with the target's `inputs` at all tokens but the last, and with room for
        `depths` more tokens."""
        prompt = max(prompts)
        lengths = [len(text) for text in texts]
        columns = prompt + max(n - own for n, own in zip(lengths, prompts, strict=True))
        tokens = torch.zeros(len(texts), columns + depths, dtype=torch.long)
        given = torch.zeros(len(texts), columns - 1, inputs[0].shape[1])
        starts = prompt - torch.tensor(prompts)
        ends = starts + torch.tensor(lengths)
        for row, (text, states) in enumerate(zip(texts, inputs, strict=True)):
            start, end = int(starts[row]), int(ends[row])
            tokens[row, start:end] = torch.from_numpy(text.astype(np.int64))
            given[row, start : end - 1] = torch.from_numpy(states)
        return cls(tokens, given, prompt, starts, ends)

    def drafted(self, values: Tensor, depth: int) -> Tensor:
        """Of `values` (texts, columns, …), what is drafted at `depth`: (texts, roots, …)."""
        roots = self.inputs.shape[1] - self.prompt + 1
        return values[:, self.prompt + 1 + depth :][:, :roots]

    def scored(self, depth: int) -> Tensor:
        """Whether the answer has a token with which the drafted one can be compared: (texts,
        roots)."""
        columns = torch.arange(self.tokens.shape[1]).expand(len(self.tokens), -1)
        return self.drafted(columns, depth) < self.ends[:, None]


def unroll(
    block: EagleBlock, batch: TextBatch, embed: Callable[[Tensor], Tensor], depths: int
) -> Iterator[Tensor]:
    """The states after what is drafted at each depth behind each token of the answers.

    Prompts are read, but nothing is drafted in them.

    Args:
        embed: the embeddings of tokens.

    Yields:
        (texts, roots, width).
    """
    rows, first = batch.inputs.shape[1], batch.prompt - 1
    columns = torch.arange(rows)
    padding, future = columns < batch.starts[:, None], columns > columns[first:, None]
    kind = torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32
    hidden = torch.zeros(len(batch.tokens), rows - first, rows, dtype=kind)
    hidden.masked_fill_(padding[:, None] | future, -torch.inf)
    hidden = hidden.repeat_interleave(block.shape.heads, 0)
    earlier: list[tuple[Tensor, Tensor]] = []
    states = block.fuse(batch.inputs)
    for depth in range(depths):
        begin = first + depth if depth else 0
        embedded = embed(batch.tokens[:, begin + 1 : rows + depth + 1])
        states = block(embedded, states, rows - first, earlier, hidden)
        yield states
