"""``python -m assets.recipe.eagle_drafter``: an EAGLE-3 drafter for a Llama (arXiv 2503.01840).

The drafter is not shipped; it serves to measure the drafts of such files. Two steps, each of which
goes on where it ended, so that they can be run in pieces:

- ``answers``: the model answers questions, and what it hands to EAGLE-3 drafters is kept;
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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, pi
from pathlib import Path
from random import Random
from time import monotonic

import click
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from gguf import GGMLQuantizationType
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from assets.recipe.drafter_training import (
    TargetMatrices,
    divergence,
    draft_vocabulary,
    drafter_writer,
    finish,
    split,
    update,
)
from assets.recipe.eagle_block import EagleBlock, TextRows
from assets.recipe.eagle_data import ReadChat, draw_answers, load_chats, read_layers
from engines.distillation.weights import interleave, read_llama_file
from engines.llama.gguf import EAGLE

_LOG = logging.getLogger("assets.recipe")

WEIGHTS = "drafter.safetensors"
DEPTHS, DECAY = 3, 0.8
"""Tokens drafted in training, and the weight of each beside that of the one before it."""
FIRST_SHARE = 2 / 3
"""Of the updates, those that draft one token only."""
BATCH_TOKENS, SORTED_CHATS = 1024, 256
RATE, WARM_UPDATES, LAST_SHARE = 2e-3, 20, 0.02
LINEAR_ROWS = 40_000
"""Rows from which the block begins."""


def read_rows(chats: Sequence[ReadChat], embeddings: Tensor) -> TextRows:
    """The first `LINEAR_ROWS` rows of answers, if there are so many."""
    parts: list[tuple[Tensor, ...]] = []
    rows = 0
    for chat in chats:
        if rows < LINEAR_ROWS:
            inputs, tokens = chat.inputs[chat.prompt - 1 : -1], chat.tokens[chat.prompt : -1]
            arrays = (inputs, tokens, chat.hidden[chat.prompt :])
            parts.append(tuple(map(torch.from_numpy, arrays)))
            rows += len(tokens)
    given, following, hidden = map(torch.cat, zip(*parts, strict=True))
    return TextRows(given.float(), embeddings[following], hidden.float())


@dataclass(frozen=True)
class ChatBatch:
    """Chats side by side, so that all answers begin in the same column.

    Row t of `inputs` and `attended` belongs to the token in column t + 1; what is drafted at depth
    d behind that root is compared with column t + 2 + d.

    Attributes:
        tokens: int64 [chats, columns + depths].
        inputs: [chats, columns - 1, 3 · width].
        states: [chats, columns + depths - 1, width], last hidden states.
        prompt: number of columns before the answers.
        starts, ends: int64 [chats], the columns that hold each chat.
    """

    tokens: Tensor
    inputs: Tensor
    states: Tensor
    prompt: int
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, chats: Sequence[ReadChat], depths: int) -> ChatBatch:
        """Those `chats`, with room for `depths` more tokens."""
        prompt = max(chat.prompt for chat in chats)
        columns = prompt + max(len(chat.tokens) - chat.prompt for chat in chats)
        count, width = len(chats), chats[0].hidden.shape[1]
        tokens = torch.zeros(count, columns + depths, dtype=torch.long)
        inputs = torch.zeros(count, columns - 1, 3 * width, dtype=torch.float16)
        states = torch.zeros(count, columns + depths - 1, width, dtype=torch.bfloat16)
        starts = torch.tensor([prompt - chat.prompt for chat in chats])
        ends = starts + torch.tensor([len(chat.tokens) for chat in chats])
        for row, chat in enumerate(chats):
            start, end = int(starts[row]), int(ends[row])
            tokens[row, start:end] = torch.from_numpy(chat.tokens)
            inputs[row, start : end - 1] = torch.from_numpy(chat.inputs)
            states[row, start : end - 1] = torch.from_numpy(chat.hidden)
        return cls(tokens, inputs, states, prompt, starts, ends)


def losses(
    drafter: EagleBlock, target: TargetMatrices, chats: Sequence[ReadChat], depths: int = DEPTHS
) -> tuple[Tensor, list[tuple[int, int]]]:
    """The weighted divergence over all depths, and (right, all) drafted tokens of each depth.

    Prompts are read, but nothing is learned from what could be drafted in them.
    """
    batch = ChatBatch.of(chats, depths)
    rows, first = batch.inputs.shape[1], batch.prompt - 1
    roots, columns = rows - first, torch.arange(rows)
    padding = columns < batch.starts[:, None]
    future = columns > columns[first:, None]
    hidden = torch.zeros(len(chats), roots, rows, dtype=torch.bfloat16)
    hidden.masked_fill_(padding[:, None] | future, -torch.inf)
    hidden = hidden.repeat_interleave(drafter.shape.heads, 0)
    earlier: list[tuple[Tensor, Tensor]] = []
    states, total, counts = drafter.fuse(batch.inputs), torch.zeros(()), []
    for depth in range(depths):
        begin = first + depth if depth else 0
        embedded = target.embeddings[batch.tokens[:, begin + 1 : rows + depth + 1]]
        states = drafter(embedded, states, roots, earlier, hidden)
        places = slice(first + depth + 1, rows + depth + 1)
        # The answer has a token there, with which the drafted one can be compared.
        scored = columns[first:] + depth + 2 < batch.ends[:, None]
        guessed = drafter.said(states[scored], target.output)
        wanted = F.linear(batch.states[:, places][scored], target.output)
        total = total + DECAY**depth * divergence(guessed, wanted)
        following = batch.tokens[:, first + depth + 2 : rows + depth + 2][scored]
        right = (target.drafted[guessed.float().argmax(-1)] == following).sum()
        counts.append((int(right), len(following)))
    return total, counts


@dataclass
class UpdateSchedule:
    """How much is learned in all, and how much has been.

    Attributes:
        updates: number of all.
        done: number of those done.
    """

    updates: int
    done: int = 0

    @property
    def rate(self) -> float:
        """The learning rate, which rises for `WARM_UPDATES` and then falls to nearly zero."""
        warm = min(1.0, (self.done + 1) / WARM_UPDATES)
        return RATE * warm * (LAST_SHARE + (1 - LAST_SHARE) * (1 + cos(pi * self.share)) / 2)

    @property
    def depths(self) -> int:
        """Most of what is learned at depth 1 serves the others, and it is learned in a fraction of
        the time, so they are added in the last third."""
        return DEPTHS if self.share >= FIRST_SHARE else 1

    @property
    def share(self) -> float:
        """Of the updates, those done."""
        return self.done / self.updates


def train(
    drafter: EagleBlock,
    target: TargetMatrices,
    chats: Sequence[ReadChat],
    schedule: UpdateSchedule,
    seconds: float,
) -> None:
    """Train until the `schedule` ends, for at most `seconds`."""
    rng, began, batches = Random(schedule.done), monotonic(), list[list[ReadChat]]()
    optimiser = torch.optim.AdamW(drafter.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.0)
    while schedule.done < schedule.updates and monotonic() - began < seconds:
        batches = batches or draw_batches(chats, rng)
        with torch.autocast("cpu", torch.bfloat16):
            loss, counts = losses(drafter, target, batches.pop(), schedule.depths)
        update(optimiser, schedule.rate, loss)
        schedule.done += 1
        if schedule.done % 20 == 0:
            _LOG.info("%d updates, loss %.3f, right %s", schedule.done, loss, _shares(counts))


def draw_batches(chats: Sequence[ReadChat], rng: Random) -> list[list[ReadChat]]:
    """All `chats` once, in batches of at least `BATCH_TOKENS` whose chats are of similar length."""
    order, batches, batch = rng.sample(chats, len(chats)), [], list[ReadChat]()
    for start in range(0, len(order), SORTED_CHATS):
        for chat in sorted(order[start : start + SORTED_CHATS], key=lambda one: len(one.tokens)):
            batch.append(chat)
            if sum(len(one.tokens) for one in batch) >= BATCH_TOKENS:
                batches.append(batch)
                batch = []
    if batch:
        batches.append(batch)
    rng.shuffle(batches)
    return batches


@torch.no_grad()
def evaluate(drafter: EagleBlock, target: TargetMatrices, chats: Sequence[ReadChat]) -> list[float]:
    """Of the drafted tokens at each depth after right ones, the share that is right."""
    totals = np.zeros((DEPTHS, 2))
    for batch in draw_batches(chats, Random(0)):
        with torch.autocast("cpu", torch.bfloat16):
            totals += losses(drafter, target, batch)[1]
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
    """Write the drafter for the model in `source` to `path`."""
    shape, prefix = drafter.shape, "blk.0."
    one = replace(shape, layers=1)
    writer = drafter_writer(path, "EAGLE-3 drafter", EAGLE, source, one, layers)
    writer.add_uint32(f"{EAGLE}.target_hidden_size", shape.width)
    whole = ("fc", "output_norm")
    tensors: dict[str, Tensor] = {
        name if name in whole else prefix + name: part for name, part in drafter.named_parameters()
    }
    for name in (f"{prefix}attn_q", f"{prefix}attn_k"):
        tensors[name] = interleave(tensors[name].detach(), shape.heads)
    tensors |= {"output": output, "fc": tensors["fc"] / drafter.scale}
    # In fewer bits, the two dominant dimensions of the target's states would round the others away,
    # and the output would guess worse. The other matrices lose nothing, and a pass over two rows or
    # more, as after accepted tokens, takes half as long as in Q8_0.
    finish(writer, tensors, drafted, {"fc", "output"}, GGMLQuantizationType.Q4_0)


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
@click.option("--temperature", default=0.0, show_default=True, help="Of the answers.")
@click.pass_obj
def answers(given: tuple[Path, Path, float], questions: Path, temperature: float) -> None:
    """Answer the first message of each chat, and keep the states."""
    target, work, seconds = given
    draw_answers(target, questions, work, seconds, temperature)


@main.command("train")
@click.option("--updates", default=2000, show_default=True, help="Updates of all runs together.")
@click.pass_obj
def run_training(given: tuple[Path, Path, float], updates: int) -> None:
    """Train, from the weights of the last run if there are any, and write the GGUF file."""
    target, work, seconds = given
    learned, held_out = split(list(load_chats(work)))
    source, path, schedule = read_llama_file(target), work / WEIGHTS, UpdateSchedule(updates)
    embeddings = source.weights["embed_tokens"]
    drafter = EagleBlock(source.shape)
    if path.exists():
        kept = load_file(path)
        drafted = kept.pop("drafted")
        drafter.load_state_dict(kept)
        with safe_open(path, "pt") as file:
            schedule.done = int(file.metadata()["updates"])
    else:
        drafted = draft_vocabulary(learned, len(embeddings))
        rows = read_rows(learned, embeddings)
        drafter.start_linear(rows, source.weights["norm"])
    output = source.weights.get("lm_head", embeddings)[drafted]
    matrices = TargetMatrices(embeddings, output, drafted)
    train(drafter, matrices, learned, schedule, seconds)
    save_file(drafter.state_dict() | {"drafted": drafted}, path, {"updates": str(schedule.done)})
    layers = read_layers(source.shape.layers)
    export(drafter, drafted, output, layers, target, work / f"{target.stem}-eagle3.gguf")
    _LOG.info("right on held-out questions: %s", evaluate(drafter, matrices, held_out))


if __name__ == "__main__":
    main()
