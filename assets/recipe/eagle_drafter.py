"""``python -m assets.recipe.eagle_drafter``: an EAGLE-3 drafter for a Llama (arXiv 2503.01840).

The drafter is not shipped; it serves to measure the drafts of such files. Three steps, each of
which goes on where it ended, so that they can be run in pieces:

- ``answers``: the model answers questions greedily;
- ``states``: it reads them again, and what it hands to EAGLE-3 drafters is kept;
- ``train``: one block learns to predict the model's distribution from it, and is written as GGUF.

As in the paper's training-time test (section 3.2), the block is unrolled for several tokens during
training: from the second on, it reads its own state in place of the target's and attends to the
target's states up to the root and to its own after it, as it does when it drafts. The loss is the
divergence from the model's distribution over the draft vocabulary.

The embeddings stay the target's, which llama.cpp shares. The output matrix has the target's rows
for the draft vocabulary, and stays as it is, so that rare tokens keep sensible rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos as cosine
from math import pi
from pathlib import Path
from random import Random
from time import monotonic

import click
import gguf
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assets.recipe.eagle_data import (
    CONTEXT,
    ReadChat,
    draw_answers,
    load_chats,
    read_layers,
    read_states,
)
from engines.distillation.export import add_sizes
from engines.distillation.model import LlamaShape, rotary
from engines.distillation.weights import copy_entries, interleave, read_llama_file
from engines.llama.gguf import DRAFT_VOCABULARY, EAGLE

_LOG = logging.getLogger("assets.recipe")

WEIGHTS = "drafter.safetensors"
HELD_OUT = 10
"""One in this many questions is held out."""
DRAFT_TOKENS = 8192
"""Size of the draft vocabulary."""
DEPTH, DECAY = 5, 0.8
"""Tokens drafted in training, and the weight of each beside that of the one before it."""
BATCH_TOKENS = 2048
RATE, WARM_STEPS = 1e-3, 20


class EagleBlock(nn.Module):
    """An EAGLE-3 drafter, with llama.cpp's `eagle3` graph (`src/models/eagle3.cpp`).

    Its heads share no keys and values: a token is read through them alone, beside the state, and a
    small target's few would tell too little of it.

    Args:
        target: the target's sizes.
    """

    def __init__(self, target: LlamaShape) -> None:
        super().__init__()
        self.shape = shape = replace(target, kv_heads=target.heads)
        width, inner = shape.width, shape.heads * shape.head_size
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

    def start_from(self, weights: dict[str, Tensor], layers: int) -> None:
        """Begin as an early exit: the last input read, through the target's last block."""
        width, last = self.shape.width, f"layers.{layers - 1}."
        with torch.no_grad():
            self.fc[:, 2 * width :] = torch.eye(width)
            self.attn_norm.copy_(weights["layers.0.input_layernorm"])
            self.attn_norm_2.copy_(weights[f"{last}input_layernorm"])
            self.ffn_norm.copy_(weights[f"{last}post_attention_layernorm"])
            self.output_norm.copy_(weights["norm"])
            for part in "qkv":
                matrix, given = getattr(self, f"attn_{part}"), weights[f"{last}{part}_proj"]
                heads = given.view(-1, self.shape.head_size, width)
                copies = heads.repeat_interleave(len(matrix) // len(given), 0)
                matrix[:, width:] = copies.flatten(0, 1)
                matrix[:, :width].normal_(std=0.02)
            self.attn_output.copy_(weights[f"{last}o_proj"])
            for part in ("gate", "up", "down"):
                getattr(self, f"ffn_{part}").copy_(weights[f"{last}{part}_proj"])

    def fuse(self, inputs: Tensor) -> Tensor:
        """The encoder: (batch, length, 3 · width) to (batch, length, width)."""
        return F.linear(inputs, self.fc)

    def forward(
        self, embedded: Tensor, states: Tensor, depth: int, earlier: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """The states after tokens that are drafted at `depth` after each root.

        Args:
            embedded: (batch, length, width), embeddings of the tokens after each root.
            states: the same shape, the states before them.
            earlier: keys and values of each depth before, each (batch, heads, length, size);
                this one's are appended. At depth 0 they are of the text itself.
        """
        batch, length, _ = embedded.shape
        pair = [self._norm(embedded, self.attn_norm), self._norm(states, self.attn_norm_2)]
        x = torch.cat(pair, dim=-1)
        q, k = (self._rotated(F.linear(x, part), depth) for part in (self.attn_q, self.attn_k))
        v = F.linear(x, self.attn_v).view(batch, length, self.shape.heads, -1).transpose(1, 2)
        earlier.append((k, v))
        mixed = self._attend(q, earlier).transpose(1, 2).reshape(batch, length, -1)
        inner = states + F.linear(mixed, self.attn_output)
        x = self._norm(inner, self.ffn_norm)
        gated = F.silu(F.linear(x, self.ffn_gate)) * F.linear(x, self.ffn_up)
        return inner + F.linear(gated, self.ffn_down)

    def said(self, states: Tensor, output: Tensor) -> Tensor:
        """Logits over the draft vocabulary."""
        return F.linear(self._norm(states, self.output_norm), output)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.shape.epsilon)

    def _rotated(self, x: Tensor, depth: int) -> Tensor:
        """Heads of x, rotated to the position of the token `depth` after each root."""
        batch, length, _ = x.shape
        x = x.view(batch, length, self.shape.heads, -1).transpose(1, 2)
        half = x.shape[-1] // 2
        places = slice(depth, depth + length)
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos[places].to(x.dtype) + turned * self.sin[places].to(x.dtype)

    def _attend(self, q: Tensor, earlier: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attention to the text up to each root, and to the drafted tokens after it."""
        length = q.shape[2]
        keys, values = zip(*earlier, strict=True)
        future = torch.full((length, length), -torch.inf).triu(1)
        scores = [q @ keys[0].mT + future]
        scores += [(q * key).sum(-1, keepdim=True) for key in keys[1:]]
        shares = (
            (torch.cat(scores, dim=-1).float() * self.shape.head_size**-0.5).softmax(-1).to(q.dtype)
        )
        mixed: Tensor = shares[..., :length] @ values[0]
        for number, value in enumerate(values[1:]):
            mixed = mixed + shares[..., length + number, None] * value
        return mixed


@dataclass(frozen=True)
class TargetMatrices:
    """The target's embeddings [vocabulary, width] and the draft vocabulary's output rows."""

    embeddings: Tensor
    output: Tensor
    drafted: Tensor


def draft_vocabulary(chats: Sequence[ReadChat], vocabulary: int) -> Tensor:
    """The most frequent tokens of answers, and the first ones of the vocabulary."""
    counts = Counter(int(token) for chat in chats for token in chat.tokens[chat.prompt :])
    tokens = [token for token, _ in counts.most_common(DRAFT_TOKENS)]
    known = set(tokens)
    more = (token for token in range(vocabulary) if token not in known)
    tokens += [token for _, token in zip(range(DRAFT_TOKENS - len(tokens)), more, strict=False)]
    return torch.tensor(sorted(tokens))


def losses(
    drafter: EagleBlock, target: TargetMatrices, chats: Sequence[ReadChat]
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The weighted divergence over all depths, and (right, all) drafted tokens of each depth.

    Row t of each tensor belongs to the root at t + 1, whose state is that of t.
    """
    length = max(len(chat.tokens) for chat in chats) - 1
    width = target.embeddings.shape[1]
    tokens = torch.zeros(len(chats), length + DEPTH + 1, dtype=torch.long)
    inputs = torch.zeros(len(chats), length, 3 * width)
    hidden = torch.zeros(len(chats), length + DEPTH, width)
    wanted = torch.zeros(len(chats), length + DEPTH, dtype=torch.bool)
    for row, chat in enumerate(chats):
        count = len(chat.tokens)
        tokens[row, : count - 1] = torch.from_numpy(chat.tokens[1:])
        inputs[row, : count - 1] = torch.from_numpy(chat.inputs[:-1])
        hidden[row, : count - 1] = torch.from_numpy(chat.hidden[1:])
        wanted[row, chat.prompt - 1 : count - 2] = True
    earlier: list[tuple[Tensor, Tensor]] = []
    states, total, counts = drafter.fuse(inputs), torch.zeros(()), []
    for depth in range(DEPTH):
        embedded = F.embedding(tokens[:, depth : depth + length], target.embeddings)
        states = drafter(embedded, states, depth, earlier)
        # The answer has this token, and the root is in it.
        scored = wanted[:, depth : depth + length] & wanted[:, :length]
        guessed = drafter.said(states[scored], target.output).float().log_softmax(-1)
        with torch.no_grad():
            expected = F.linear(hidden[:, depth : depth + length][scored], target.output).float()
            following = tokens[:, depth + 1 : depth + 1 + length][scored]
        kl = F.kl_div(guessed, expected.log_softmax(-1), reduction="batchmean", log_target=True)
        total = total + DECAY**depth * kl
        right = (target.drafted[guessed.argmax(-1)] == following).sum()
        counts.append((int(right), len(following)))
    return total, counts


def train(
    drafter: EagleBlock,
    target: TargetMatrices,
    chats: Sequence[ReadChat],
    seconds: float,
    seed: int,
) -> None:
    """Train for about `seconds`, with a learning rate that decays to zero."""
    rng, optimiser = Random(seed), torch.optim.AdamW(drafter.parameters(), RATE, betas=(0.9, 0.95))
    began, updates, order = monotonic(), 0, list[ReadChat]()
    while (spent := monotonic() - began) < seconds:
        batch: list[ReadChat] = []
        while sum(len(chat.tokens) for chat in batch) < BATCH_TOKENS:
            if not order:
                order = rng.sample(chats, len(chats))
            batch.append(order.pop())
        share = min(1.0, (updates + 1) / WARM_STEPS) * (1 + cosine(pi * spent / seconds)) / 2
        for group in optimiser.param_groups:
            group["lr"] = RATE * share
        with torch.autocast("cpu", torch.bfloat16):
            loss, counts = losses(drafter, target, batch)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimiser.step()
        updates += 1
        if updates % 20 == 0:
            values = (spent, updates, loss.item(), _shares(counts))
            _LOG.info("%4.0f s, %d updates, loss %.3f, right %s", *values)


@torch.no_grad()
def evaluate(drafter: EagleBlock, target: TargetMatrices, chats: Sequence[ReadChat]) -> list[float]:
    """Of the drafted tokens at each depth after right ones, the share that is right."""
    totals = np.zeros((DEPTH, 2))
    for chat in chats:
        with torch.autocast("cpu", torch.bfloat16):
            totals += losses(drafter, target, [chat])[1]
    shares: list[float] = (totals[:, 0] / totals[:, 1]).tolist()
    return shares


def _shares(counts: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{right / max(of, 1):.2f}" for right, of in counts)


def export(
    drafter: EagleBlock,
    drafted: Tensor,
    output: Tensor,
    layers: list[int],
    source: Path,
    path: Path,
) -> None:
    """Write the drafter for the model in `source` to `path`, its matrices in Q8_0."""
    reader, shape, prefix = gguf.GGUFReader(source), drafter.shape, "blk.0."
    writer = gguf.GGUFWriter(path, EAGLE)
    writer.add_name("EAGLE-3 drafter")
    copy_entries(reader, writer, "tokenizer.")
    add_sizes(writer, replace(shape, layers=1))
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_array(f"{EAGLE}.target_layers", layers)
    writer.add_uint32(f"{EAGLE}.target_hidden_size", shape.width)
    whole = ("fc", "output_norm")
    tensors = {
        name if name in whole else prefix + name: part for name, part in drafter.named_parameters()
    }
    for name in (f"{prefix}attn_q", f"{prefix}attn_k"):
        tensors[name] = nn.Parameter(interleave(tensors[name].detach(), shape.heads))
    tensors["output"] = nn.Parameter(output)
    for name, tensor in tensors.items():
        values = tensor.detach().float().numpy()
        if values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.add_tensor(DRAFT_VOCABULARY, drafted.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@click.group()
@click.option("--target", type=click.Path(path_type=Path), required=True, help="GGUF of a Llama.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder to work in.")
@click.option("--minutes", default=9.0, show_default=True, help="Time of a step.")
@click.pass_context
def main(context: click.Context, target: Path, work: Path, minutes: float) -> None:
    """Make an EAGLE-3 drafter, a step at a time."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    work.mkdir(parents=True, exist_ok=True)
    context.obj = (target, work, 60.0 * minutes)


@main.command()
@click.option("--questions", type=click.Path(path_type=Path), required=True, help="JSON lines.")
@click.pass_obj
def answers(given: tuple[Path, Path, float], questions: Path) -> None:
    """Answer the first message of each chat."""
    target, work, seconds = given
    draw_answers(target, questions, work, seconds)


@main.command()
@click.pass_obj
def states(given: tuple[Path, Path, float]) -> None:
    """Read the answers again, and keep the states."""
    read_states(*given)


@main.command("train")
@click.option("--seed", default=1, show_default=True, help="Fixes the order of the chats.")
@click.pass_obj
def run_training(given: tuple[Path, Path, float], seed: int) -> None:
    """Train, from the weights of the last run if there are any, and write the GGUF file."""
    target, work, seconds = given
    chats, source = load_chats(work), read_llama_file(target)
    held_out, learned = (
        chats[::HELD_OUT],
        [chat for number, chat in enumerate(chats) if number % HELD_OUT],
    )
    embeddings = source.weights["embed_tokens"]
    drafted = draft_vocabulary(learned, len(embeddings))
    rows = source.weights.get("lm_head", embeddings)[drafted]
    matrices = TargetMatrices(embeddings, rows, drafted)
    drafter, path = EagleBlock(source.shape), work / WEIGHTS
    if path.exists():
        drafter.load_state_dict(load_file(path))
    else:
        drafter.start_from(dict(source.weights), source.shape.layers)
    train(drafter, matrices, learned, seconds, seed)
    save_file(drafter.state_dict(), path)
    layers = read_layers(source.shape.layers)
    export(drafter, drafted, rows, layers, target, work / f"{target.stem}-eagle3.gguf")
    _LOG.info("right on held-out answers: %s", evaluate(drafter, matrices, held_out))


if __name__ == "__main__":
    main()
