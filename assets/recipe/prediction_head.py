"""``python -m assets.recipe.prediction_head``: a prediction head for the embedded model.

The head is not shipped; it serves to measure multi-token prediction. The embedded model's weights
stay unchanged, as the trunk of a Step-3.5, the llama.cpp architecture that computes the same and
supports prediction heads. One block is trained to predict the token after the next, as in
DeepSeek-V3 (section 2.2), on answers sampled from the model to the questions in
``assets/known-questions.txt``. The loss is the divergence from the model's own distribution. The
first step starts from the model's states and the second from the head's own, as in drafting.

Every tenth question is held out and goes into a workload in the same folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import cos as cosine
from math import pi
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import click
import gguf
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from assets.recipe.drafter_training import update
from assets.recipe.workloads import write
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.distillation.export import add_sizes
from engines.distillation.model import Layer, Llama, LlamaShape
from engines.distillation.weights import copy_entries, read_llama_file, tensor_name
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.llama.model import LlamaModel, load
from engines.sampler import Sampling, make_sampler

_LOG = logging.getLogger("assets.recipe")

ASSETS = Path(__file__).parents[1]
TARGET, QUESTIONS = ASSETS / "target-f16.gguf", ASSETS / "known-questions.txt"
ARCHITECTURE = "step35"
HELD_OUT = 10
"""One in this many questions is held out."""
TEMPERATURES = (0.0, 0.6, 1.0)
MAX_ANSWER_TOKENS, DRAFT_TOKENS = 160, 6
BATCH_CHATS = 16
RATE, WARM_STEPS = 3e-3, 20
STEP_WEIGHTS = (1.0, 0.6)
"""Weights of the loss at the first and the second drafted token."""


@dataclass(frozen=True)
class AnsweredChat:
    """The tokens of a chat, and how many of them precede the answer."""

    tokens: list[int]
    prompt: int


class PredictionHead(nn.Module):
    """A block over a token's embedding and the preceding hidden state."""

    def __init__(self, trunk: Llama) -> None:
        super().__init__()
        width = trunk.shape.width
        self.enorm, self.hnorm, self.norm = (nn.Parameter(torch.ones(width)) for _ in range(3))
        self.eh_proj = nn.Parameter(torch.cat((torch.eye(width), torch.eye(width)), dim=1) * 0.5)
        self.block = Layer(trunk.shape)
        self.block.load_state_dict(trunk.layers[-1].state_dict())

    def forward(self, embedded: Tensor, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map embeddings and preceding states to the next states, all (batch, length, width)."""
        epsilon = self.block.shape.epsilon
        pair = [
            F.rms_norm(embedded, embedded.shape[-1:], self.enorm, epsilon),
            F.rms_norm(states, states.shape[-1:], self.hnorm, epsilon),
        ]
        state: Tensor = self.block(F.linear(torch.cat(pair, dim=-1), self.eh_proj), cos, sin)[0]
        return state


def draw_answers(model: LlamaModel, questions: Sequence[str], seed: int) -> Iterator[AnsweredChat]:
    """An endless stream of answers, in random order and at random `TEMPERATURES`."""
    rng, stops = Random(seed), model.vocabulary.stops
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling()]
    budget = FixedBudget(DRAFT_TOKENS, CostModel(), AcceptanceModel())
    while True:
        for question in rng.sample(questions, len(questions)):
            prompt = model.render([Message("user", question)])
            list(model.target.prefill(prompt))
            sampling = Sampling(rng.choice(TEMPERATURES), seed=rng.randrange(1 << 30))
            stop = StopCriteria(stops, MAX_ANSWER_TOKENS)
            steps = decode(model.target, drafters, budget, make_sampler(sampling), stop)
            answer = [token for step in steps for token in step.tokens]
            yield AnsweredChat([*prompt, *answer], len(prompt))


def trunk_states(trunk: Llama, ids: Tensor) -> Tensor:
    """The states before the final norm, for ids (batch, length)."""
    x = F.embedding(ids, trunk.embed_tokens)
    for layer in trunk.layers:
        x, _ = layer(x, trunk.cos[: ids.shape[1]], trunk.sin[: ids.shape[1]])
    return x


def head_loss(trunk: Llama, head: PredictionHead, chats: Sequence[AnsweredChat]) -> Tensor:
    """The mean divergence of the head's predictions from the model's, over all answer tokens."""
    longest = max(len(chat.tokens) for chat in chats)
    ids = torch.zeros(len(chats), longest, dtype=torch.long)
    wanted = torch.zeros(len(chats), longest, dtype=torch.bool)
    for row, chat in enumerate(chats):
        ids[row, : len(chat.tokens)] = torch.tensor(chat.tokens)
        wanted[row, chat.prompt : len(chat.tokens) - 1] = True
    with torch.no_grad():
        states = trunk_states(trunk, ids)
        final = F.rms_norm(states, states.shape[-1:], trunk.norm, trunk.shape.epsilon)
        expected = trunk.logits(final[wanted]).log_softmax(dim=-1)
        embedded = F.embedding(ids, trunk.embed_tokens)
    cos, sin = trunk.cos[:longest], trunk.sin[:longest]
    total = states.new_zeros(())
    for weight in STEP_WEIGHTS:
        # Each token is paired with the state of the one before it; the first has none.
        states = head(embedded, F.pad(states, (0, 0, 1, -1)), cos, sin)
        said = F.rms_norm(states[wanted], states.shape[-1:], head.norm, trunk.shape.epsilon)
        guessed = trunk.logits(said).log_softmax(dim=-1)
        total = total + weight * F.kl_div(guessed, expected, reduction="batchmean", log_target=True)
    return total


def train(
    trunk: Llama, head: PredictionHead, chats: Sequence[AnsweredChat], seconds: float, seed: int
) -> None:
    """Train the head on `chats` for about `seconds`, with a learning rate that decays to zero."""
    rng, optimiser = Random(seed), torch.optim.AdamW(head.parameters(), RATE, betas=(0.9, 0.98))
    began, updates, order = monotonic(), 0, list[AnsweredChat]()
    while (spent := monotonic() - began) < seconds:
        if len(order) < BATCH_CHATS:
            order = rng.sample(chats, len(chats))
        batch, order = order[:BATCH_CHATS], order[BATCH_CHATS:]
        share = min(1.0, (updates + 1) / WARM_STEPS) * (1 + cosine(pi * spent / seconds)) / 2
        loss = head_loss(trunk, head, batch)
        update(optimiser, RATE * share, loss)
        updates += 1
        if updates % 20 == 0:
            _LOG.info("%4.0f s, %d updates, loss %.3f", spent, updates, loss.item())


def export(trunk: Llama, head: PredictionHead, source: Path, path: Path) -> None:
    """Write the model in `source` and the head to `path`, as a Step-3.5."""
    shape, blocks = trunk.shape, trunk.shape.layers
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_name("specchat target with a prediction head")
    copy_entries(gguf.GGUFReader(source), writer, "tokenizer.")
    _describe(writer, replace(shape, layers=blocks + 1))
    weights = {**trunk.state_dict(), "lm_head": trunk.embed_tokens}
    weights |= {f"layers.{blocks}.{name}": part for name, part in head.block.state_dict().items()}
    tensors = {tensor_name(name): part for name, part in weights.items()}
    prefix = f"blk.{blocks}.nextn"
    tensors |= {f"{prefix}.{name}.weight": getattr(head, name) for name in ("enorm", "hnorm")}
    tensors[f"{prefix}.eh_proj.weight"] = head.eh_proj
    tensors[f"{prefix}.shared_head_norm.weight"] = head.norm
    for name, part in tensors.items():
        kind = np.float16 if part.ndim == 2 else np.float32
        writer.add_tensor(name, part.detach().numpy().astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, shape: LlamaShape) -> None:
    """Describe a Step-3.5 that computes a Llama: sliding windows cover the context.

    The architecture pairs the halves of a head for rotation, as in training. In layers without a
    window it rotates only half of the elements that the file names, so the file names twice as
    many.
    """
    add_sizes(writer, shape)
    writer.add_uint32(f"{ARCHITECTURE}.nextn_predict_layers", 1)
    writer.add_expert_feed_forward_length(shape.hidden)
    writer.add_rope_dimension_count(2 * shape.head_size)
    writer.add_uint32(f"{ARCHITECTURE}.rope.dimension_count_swa", shape.head_size)
    writer.add_float32(f"{ARCHITECTURE}.rope.freq_base_swa", shape.rope_base)
    writer.add_sliding_window(shape.context)
    pattern = [True, *[False] * (shape.layers - 1)]
    writer.add_array(f"{ARCHITECTURE}.attention.sliding_window_pattern", pattern)
    for part in ("key_length", "value_length", "key_length_swa", "value_length_swa"):
        writer.add_uint32(f"{ARCHITECTURE}.attention.{part}", shape.head_size)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--answers", default=1500, show_default=True, help="Answers to train on.")
@click.option("--minutes", default=15.0, show_default=True, help="Of training.")
@click.option("--seed", default=1, show_default=True, help="Fixes answers and their order.")
def main(out: Path, answers: int, minutes: float, seed: int) -> None:
    """Write the embedded model with a prediction head, and a workload of held-out questions."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    out.mkdir(parents=True, exist_ok=True)
    questions = QUESTIONS.read_text(encoding="utf-8").splitlines()
    Random(seed).shuffle(questions)
    write(out / "held-out.jsonl", questions[::HELD_OUT])
    asked = [one for index, one in enumerate(questions) if index % HELD_OUT]
    drawn = draw_answers(load(TARGET, threads=2, context_length=1024), asked, seed)
    chats = [chat for _, chat in zip(range(answers), drawn, strict=False)]
    trunk = read_llama_file(TARGET).model().requires_grad_(False)
    head = PredictionHead(trunk)
    train(trunk, head, chats, 60.0 * minutes, seed)
    export(trunk, head, TARGET, out / "target-with-head-f16.gguf")


if __name__ == "__main__":
    main()
