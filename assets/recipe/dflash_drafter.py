"""``python -m assets.recipe.dflash_drafter``: a DFlash drafter for a Llama (arXiv 2602.06036).

The drafter is not shipped; it serves to measure the drafts of such files. It learns from the same
answers and states as `eagle_drafter`, whose first two steps come before it.

Blocks begin at random places of the answers. Each learns the model's distributions of the tokens
after its root, the nearer ones with more weight (section 4.2). Embeddings and output matrix are
those of `eagle_drafter`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import cos as cosine
from math import pi
from pathlib import Path
from random import Random
from time import monotonic

import click
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assets.recipe.drafter_training import (
    TargetMatrices,
    divergence,
    draft_vocabulary,
    drafter_writer,
    finish,
    split,
    update,
)
from assets.recipe.eagle_data import CONTEXT, ReadChat, load_chats, read_layers
from engines.distillation.model import LlamaShape, rotary
from engines.distillation.weights import read_llama_file
from engines.llama.gguf import DFLASH

_LOG = logging.getLogger("assets.recipe")

WEIGHTS = "dflash.safetensors"
LAYERS, BLOCK = 2, 6
MASK = 0
"""Stands for tokens to be drafted: it ends documents, so that no answer has it."""
ROOTS = 32
"""Blocks of each answer in a batch."""
BATCH = 8
"""Answers in a batch."""
DECAY = 0.8
"""Weight of each drafted token beside that of the one before it."""
RATE, WARM_STEPS = 1e-3, 20


class DFlashLayer(nn.Module):
    """A layer, with llama.cpp's `dflash` graph (`src/models/dflash.cpp`)."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape, width, inner = shape, shape.width, shape.heads * shape.head_size
        self.attn_norm, self.ffn_norm = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.attn_q_norm, self.attn_k_norm = (
            nn.Parameter(torch.ones(shape.head_size)) for _ in range(2)
        )
        self.attn_q, self.attn_k, self.attn_v = (
            nn.Parameter(torch.zeros(inner, width)) for _ in range(3)
        )
        self.attn_output = nn.Parameter(torch.zeros(width, inner))
        self.ffn_gate = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_up = nn.Parameter(torch.zeros(shape.hidden, width))
        self.ffn_down = nn.Parameter(torch.zeros(width, shape.hidden))

    def start_from(self, weights: dict[str, Tensor], layer: int) -> None:
        """Begin as one of the target's layers."""
        prefix = f"layers.{layer}."
        with torch.no_grad():
            self.attn_norm.copy_(weights[f"{prefix}input_layernorm"])
            self.ffn_norm.copy_(weights[f"{prefix}post_attention_layernorm"])
            for part in "qkv":
                matrix, given = getattr(self, f"attn_{part}"), weights[f"{prefix}{part}_proj"]
                heads = given.view(-1, self.shape.head_size, self.shape.width)
                copies = heads.repeat_interleave(len(matrix) // len(given), 0)
                matrix.copy_(copies.flatten(0, 1))
            self.attn_output.copy_(weights[f"{prefix}o_proj"])
            for part in ("gate", "up", "down"):
                getattr(self, f"ffn_{part}").copy_(weights[f"{prefix}{part}_proj"])

    def forward(
        self, x: Tensor, fused: Tensor, hidden: Tensor, turns: Tensor, first_turns: Tensor
    ) -> Tensor:
        """The layer's output for blocks.

        Args:
            x: (chats, rows, width), the rows of all blocks.
            fused: (chats, length, width), made from the target's states.
            hidden: (chats, 1, rows, length), minus infinity where a row may not attend.
            turns, first_turns: cosines and sines for the positions of `x` and `fused`, (2, chats or
                1, 1, rows or length, head size).
        """
        normed, length = self._norm(x, self.attn_norm), fused.shape[1]
        q = self._rotated(normed, self.attn_q, self.attn_q_norm, turns)
        k = self._rotated(normed, self.attn_k, self.attn_k_norm, turns)
        past = self._rotated(fused, self.attn_k, self.attn_k_norm, first_turns)
        v, old = (self._heads(F.linear(one, self.attn_v)) for one in (normed, fused))
        among = (_blocks(q) @ _blocks(k).mT).flatten(2, 3)
        scores = torch.cat([q @ past.mT + hidden, among], dim=-1)
        shares = (scores.float() * self.shape.head_size**-0.5).softmax(-1).to(v.dtype)
        inside = (_blocks(shares[..., length:]) @ _blocks(v)).flatten(2, 3)
        mixed = shares[..., :length] @ old + inside
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), self.attn_output)
        normed = self._norm(x, self.ffn_norm)
        gated = F.silu(F.linear(normed, self.ffn_gate)) * F.linear(normed, self.ffn_up)
        return x + F.linear(gated, self.ffn_down)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.shape.epsilon)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.shape.heads, -1).transpose(1, 2)

    def _rotated(self, x: Tensor, matrix: Tensor, norm: Tensor, turns: Tensor) -> Tensor:
        """Queries or keys, (chats, heads, rows, head size)."""
        x = self._norm(self._heads(F.linear(x, matrix)), norm)
        half = x.shape[-1] // 2
        return x * turns[0] + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * turns[1]


def _blocks(x: Tensor) -> Tensor:
    """(chats, heads, rows, size) as (chats, heads, roots, BLOCK, size)."""
    return x.view(*x.shape[:2], -1, BLOCK, x.shape[-1])


class DFlashBlock(nn.Module):
    """A DFlash drafter without embeddings and output matrix; its heads share no keys and values.

    Args:
        target: the target's sizes.
    """

    def __init__(self, target: LlamaShape) -> None:
        super().__init__()
        self.shape = shape = replace(target, kv_heads=target.heads, layers=LAYERS)
        self.fc = nn.Parameter(torch.zeros(shape.width, 3 * shape.width))
        self.output_norm_enc, self.output_norm = (
            nn.Parameter(torch.ones(shape.width)) for _ in range(2)
        )
        self.layers = nn.ModuleList(DFlashLayer(shape) for _ in range(LAYERS))
        self.turns = torch.stack(rotary(shape.head_size, shape.rope_base, CONTEXT))

    def start_from(self, weights: dict[str, Tensor], layers: int) -> None:
        """Begin as the target's last layers, which read the last of the inputs."""
        with torch.no_grad():
            self.fc[:, 2 * self.shape.width :] = torch.eye(self.shape.width)
            self.output_norm_enc.copy_(weights[f"layers.{layers - 1}.input_layernorm"])
            self.output_norm.copy_(weights["norm"])
        for number, layer in enumerate(self.layers):
            layer.start_from(weights, layers - LAYERS + number)  # type: ignore[operator]

    def forward(self, inputs: Tensor, roots: Tensor, embedded: Tensor) -> Tensor:
        """What follows each root, normed.

        Args:
            inputs: (chats, length, 3 · width).
            roots: int64 (chats, roots), their positions.
            embedded: (chats, roots, BLOCK, width), embeddings of the root and of `MASK`.

        Returns:
            (chats, roots, BLOCK - 1, width).
        """
        length = inputs.shape[1]
        fused = self._norm(F.linear(inputs, self.fc), self.output_norm_enc)
        x, places = embedded.flatten(1, 2), (roots[:, :, None] + torch.arange(BLOCK)).flatten(1)
        later = torch.arange(length) >= roots.repeat_interleave(BLOCK, 1)[:, :, None]
        hidden = torch.zeros(later.shape).masked_fill(later, -torch.inf)[:, None]
        turns, first_turns = self.turns[:, places, None].transpose(2, 3), self.turns[:, None, None]
        for layer in self.layers:
            x = layer(x, fused, hidden, turns, first_turns[..., :length, :])
        return self._norm(x.view(embedded.shape)[:, :, 1:], self.output_norm)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.shape.epsilon)


def losses(
    drafter: DFlashBlock, target: TargetMatrices, chats: Sequence[ReadChat], rng: Random
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The weighted divergence over a block, and (right, all) drafted tokens of each depth.

    `chats` have answers longer than a block.
    """
    length, width = max(len(chat.tokens) for chat in chats), target.embeddings.shape[1]
    tokens = torch.full((len(chats), length + BLOCK), MASK)
    inputs = torch.zeros(len(chats), length, 3 * width)
    hidden = torch.zeros(len(chats), length + BLOCK, width)
    for row, chat in enumerate(chats):
        count = len(chat.tokens)
        tokens[row, :count] = torch.from_numpy(chat.tokens)
        inputs[row, : count - 1] = torch.from_numpy(chat.inputs)
        hidden[row, : count - 1] = torch.from_numpy(chat.hidden)
    counts = torch.tensor([len(chat.tokens) for chat in chats])[:, None]
    places = [rng.choices(range(chat.prompt, len(chat.tokens) - 1), k=ROOTS) for chat in chats]
    roots, chat_rows = torch.tensor(places), torch.arange(len(chats))[:, None]
    block = torch.full((len(chats), ROOTS, BLOCK), MASK)
    block[:, :, 0] = tokens[chat_rows, roots]
    states = drafter(inputs, roots, F.embedding(block, target.embeddings))
    total, found = torch.zeros(()), []
    for depth in range(BLOCK - 1):
        scored = roots + depth + 1 < counts
        guessed = F.linear(states[:, :, depth][scored], target.output)
        wanted = F.linear(hidden[chat_rows, roots + depth][scored], target.output)
        total = total + DECAY**depth * divergence(guessed, wanted)
        following = tokens[chat_rows, roots + depth + 1][scored]
        right = (target.drafted[guessed.argmax(-1)] == following).sum()
        found.append((int(right), len(following)))
    return total, found


def train(
    drafter: DFlashBlock,
    target: TargetMatrices,
    chats: Sequence[ReadChat],
    seconds: float,
    seed: int,
) -> None:
    """Train for about `seconds`, with a learning rate that decays to zero."""
    rng, optimiser = Random(seed), torch.optim.AdamW(drafter.parameters(), RATE, betas=(0.9, 0.95))
    began, updates = monotonic(), 0
    while (spent := monotonic() - began) < seconds:
        share = min(1.0, (updates + 1) / WARM_STEPS) * (1 + cosine(pi * spent / seconds)) / 2
        with torch.autocast("cpu", torch.bfloat16):
            loss, counts = losses(drafter, target, rng.sample(chats, min(BATCH, len(chats))), rng)
        update(optimiser, RATE * share, loss)
        updates += 1
        if updates % 20 == 0:
            values = (spent, updates, loss.item(), [round(a / max(b, 1), 2) for a, b in counts])
            _LOG.info("%4.0f s, %d updates, loss %.3f, right %s", *values)


@torch.no_grad()
def evaluate(
    drafter: DFlashBlock, target: TargetMatrices, chats: Sequence[ReadChat]
) -> list[float]:
    """Of the drafted tokens at each depth, the share that is right."""
    totals, rng = np.zeros((BLOCK - 1, 2)), Random(1)
    for start in range(0, len(chats), BATCH):
        with torch.autocast("cpu", torch.bfloat16):
            totals += losses(drafter, target, chats[start : start + BATCH], rng)[1]
    shares: list[float] = (totals[:, 0] / totals[:, 1]).tolist()
    return shares


def export(
    drafter: DFlashBlock,
    target: TargetMatrices,
    layers: list[int],
    source: Path,
    path: Path,
) -> None:
    """Write the drafter for the model in `source` to `path`, its matrices in Q8_0."""
    shape = drafter.shape
    writer = drafter_writer(path, "DFlash drafter", DFLASH, source, shape, layers)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_uint32(f"{DFLASH}.block_size", BLOCK)
    writer.add_mask_token_id(MASK)
    tensors = {
        name.replace("layers.", "blk.").replace("output_norm_enc", "enc.output_norm"): tensor
        for name, tensor in drafter.named_parameters()
    }
    finish(writer, tensors | {"output": target.output}, target.drafted)


@click.command()
@click.option("--target", type=click.Path(path_type=Path), required=True, help="GGUF of a Llama.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder to work in.")
@click.option("--minutes", default=9.0, show_default=True, help="Time of training.")
@click.option("--seed", default=1, show_default=True, help="Fixes the order of the chats.")
def main(target: Path, work: Path, minutes: float, seed: int) -> None:
    """Train, from the weights of the last run if there are any, and write the GGUF file."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    source = read_llama_file(target)
    chats = [chat for chat in load_chats(work) if len(chat.tokens) - chat.prompt > BLOCK]
    learned, held_out = split(chats)
    embeddings = source.weights["embed_tokens"]
    drafted = draft_vocabulary(learned, len(embeddings))
    rows = source.weights.get("lm_head", embeddings)[drafted]
    matrices = TargetMatrices(embeddings, rows, drafted)
    drafter, path = DFlashBlock(source.shape), work / WEIGHTS
    if path.exists():
        drafter.load_state_dict(load_file(path))
    else:
        drafter.start_from(dict(source.weights), source.shape.layers)
    train(drafter, matrices, learned, 60.0 * minutes, seed)
    save_file(drafter.state_dict(), path)
    layers, beside = read_layers(source.shape.layers), work / f"{target.stem}-dflash.gguf"
    export(drafter, matrices, layers, target, beside)
    _LOG.info("right on held-out questions: %s", evaluate(drafter, matrices, held_out))


if __name__ == "__main__":
    main()
