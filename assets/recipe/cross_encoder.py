"""``python -m assets.recipe.cross_encoder FOLDER FILE``: a cross-encoder as one GGUF file.

FOLDER holds all-MiniLM-L6-v2 as sentence-transformers saves it, from which training begins. The
model learns whether a passage states the answer to a question (`asked_notes`). Right pairs are a
note and the questions that it answers; wrong ones are the note and questions that it only seems to
answer, and its own questions with other notes, mostly those whose embeddings are near the question.

Weights and order follow from the seed, for the same number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from app.models.discovery import embedded_embedding_model
from assets.recipe.asked_notes import AskedNote, draw_passage, read_notes
from assets.recipe.drafter_training import update
from assets.recipe.embedding_model import write_bert
from assets.recipe.training import pick_device
from engines.llama.cross_encoder import pair
from engines.llama.embedding import EmbeddingModel
from engines.llama.vocabulary import LlamaVocabulary, load_vocabulary

_LOG = logging.getLogger("assets.recipe")

HELD_OUT = 25
"""One in this many notes is held out."""
QUESTIONS = 3
"""Questions of each kind that a note is drawn with, at most."""
NEAR, NEAR_SHARE, ANY_SHARE, NEAREST = 8, 0.65, 0.05, 0.6
"""Near notes that are known of a question; the shares of right pairs that are followed by one of
them, and by any note; and how fast the less near ones become rare."""
POOL, BATCH_TOKENS = 256, 3600
"""Pairs that are sorted by length together, and tokens of a batch, padding included."""
RATE, WARM_STEPS, STEADY, LEAST = 1.5e-4, 100, 0.4, 0.01
"""Learning rate, steps until it is reached, and the part of the training after which it falls
linearly to the least part of it."""
DECAY, BETAS = 0.01, (0.9, 0.98)
DOUBT = 0.02
"""Share of the labels that are taken to be wrong."""
HEAD_DEVIATION = 0.02

Pair = tuple[list[int], bool]
"""Token ids of a question and a passage, and whether the passage states the answer."""
NearNotes = dict[AskedNote, list[list[AskedNote]]]


def split(notes: Sequence[AskedNote]) -> tuple[list[AskedNote], list[AskedNote]]:
    """Notes to learn from, and held-out ones."""
    parts: tuple[list[AskedNote], list[AskedNote]] = ([], [])
    for note in notes:
        parts[crc32(note.text.encode()) % HELD_OUT == 0].append(note)
    return parts


def find_near(notes: Sequence[AskedNote], model: EmbeddingModel) -> NearNotes:
    """Of each note, for each question that it answers, the nearest notes that do not list it."""
    said = np.array([one.vector for one in model.encode_passages([note.plain for note in notes])])
    near: NearNotes = {}
    for note in notes:
        asked = np.array([one.vector for one in model.encode_queries(note.answered)])
        order = np.argsort(-(asked @ said.T), kind="stable")
        near[note] = [
            list(islice((notes[at] for at in row if question not in notes[at].answered), NEAR))
            for question, row in zip(note.answered, order, strict=True)
        ]
    return near


class PairStream:
    """Draws batches of pairs.

    Args:
        rounds: how often each note is drawn.
    """

    def __init__(
        self,
        notes: Sequence[AskedNote],
        near: NearNotes,
        vocabulary: LlamaVocabulary,
        rounds: float,
        rng: Random,
    ) -> None:
        self._notes, self._near, self._vocabulary, self._rng = notes, near, vocabulary, rng
        self._total = round(rounds * len(notes))

    def batches(self) -> Iterator[tuple[float, list[Pair]]]:
        """Each batch, and the part of the notes that was drawn before its pool was full."""
        pool: list[Pair] = []
        for drawn, note in enumerate(self._drawn(), 1):
            pool += self._pairs(note)
            if len(pool) >= POOL or drawn == self._total:
                for batch in self._batches(pool):
                    yield drawn / self._total, batch
                pool = []

    def _drawn(self) -> Iterator[AskedNote]:
        left = self._total
        while left > 0:
            yield from self._rng.sample(self._notes, min(left, len(self._notes)))
            left -= len(self._notes)

    def _pairs(self, note: AskedNote) -> Iterator[Pair]:
        rng = self._rng
        answered = list(zip(note.answered, self._near[note], strict=True))
        for question, near in rng.sample(answered, min(QUESTIONS, len(answered))):
            yield self._pair(question, note, True)
            chance = rng.random()
            if near and chance < NEAR_SHARE:
                rank = min(int(rng.expovariate(NEAREST)), len(near) - 1)
                yield self._pair(question, near[rank], False)
            elif chance < NEAR_SHARE + ANY_SHARE:
                other = rng.choice(self._notes)
                yield self._pair(question, other, question in other.answered)
        for question in rng.sample(note.unanswered, min(QUESTIONS, len(note.unanswered))):
            yield self._pair(question, note, False)

    def _pair(self, question: str, note: AskedNote, states: bool) -> Pair:
        passage = draw_passage(note, self._notes, self._rng)
        return pair(self._vocabulary, question, passage), states

    def _batches(self, pool: list[Pair]) -> list[list[Pair]]:
        """Of similar lengths, in random order."""
        batches: list[list[Pair]] = [[]]
        for one in sorted(pool, key=lambda one: len(one[0])):
            if batches[-1] and (len(batches[-1]) + 1) * len(one[0]) > BATCH_TOKENS:
                batches.append([])
            batches[-1].append(one)
        self._rng.shuffle(batches)
        return batches


def open_model(folder: Path) -> Any:
    """transformers' model of `folder` with one output, whose last two layers know nothing."""
    from transformers import BertForSequenceClassification

    model: Any = BertForSequenceClassification.from_pretrained(folder, num_labels=1)
    for layer in (model.bert.pooler.dense, model.classifier):
        nn.init.normal_(layer.weight, std=HEAD_DEVIATION)
        nn.init.zeros_(layer.bias)
    # Most words are in no note, and those that are do not change their meaning.
    model.bert.embeddings.word_embeddings.requires_grad_(False)
    return model


def log_odds(model: Any, texts: Sequence[list[int]]) -> Tensor:
    """Float32 [texts], by the token ids of each."""
    device, kind = pick_device()
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    lengths = torch.tensor([len(text) for text in texts])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    with torch.autocast(device.type, kind, enabled=kind == torch.bfloat16):
        found = model(input_ids=ids.to(device), attention_mask=mask.to(device).long())
    scores: Tensor = found.logits[:, 0].float().cpu()
    return scores


def train(model: Any, batches: Iterator[tuple[float, list[Pair]]]) -> None:
    """Train on `batches`, each with the part of the training that is over."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": DECAY},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, RATE, betas=BETAS)
    model.train()
    losses: list[float] = []
    for over, batch in batches:
        wanted = torch.tensor([DOUBT + (1 - 2 * DOUBT) * states for _, states in batch])
        scores = log_odds(model, [ids for ids, _ in batch])
        loss = binary_cross_entropy_with_logits(scores, wanted)
        update(optimiser, RATE * rate_factor(len(losses), over), loss)
        losses.append(loss.item())
        if len(losses) % 100 == 0:
            _LOG.info(
                "%.0f %%, %d updates, loss %.3f", 100 * over, len(losses), np.mean(losses[-100:])
            )


def rate_factor(updates: int, over: float) -> float:
    """The factor on the learning rate after `updates`, with the part `over` of the training."""
    return min(1.0, (updates + 1) / WARM_STEPS) * min(1.0, max(LEAST, (1 - over) / (1 - STEADY)))


@torch.no_grad()
def evaluate(
    model: Any, notes: Sequence[AskedNote], vocabulary: LlamaVocabulary
) -> tuple[float, float]:
    """How often a question that its note answers scores higher than one that its note does not, and
    how often the sign of the log-odds is right, both kinds of questions counting the same."""
    model.eval()

    def scores(note: AskedNote, questions: Sequence[str]) -> Tensor:
        return log_odds(model, [pair(vocabulary, asked, note.plain) for asked in questions])

    right = torch.cat([scores(note, note.answered) for note in notes])
    wrong = torch.cat([scores(note, note.unanswered) for note in notes])
    above = (right[:, None] > wrong).double() + (right[:, None] == wrong).double() / 2
    signs = (right > 0).double().mean() + (wrong <= 0).double().mean()
    return float(above.mean()), float(signs / 2)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rounds", default=5.0, show_default=True, help="How often each note is drawn.")
@click.option("--seed", default=0, show_default=True, help="Fixes weights and order.")
@click.option("--threads", default=2, show_default=True, help="CPU threads.")
def main(folder: Path, file: Path, rounds: float, seed: int, threads: int) -> None:
    """Train, and write the GGUF file."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    notes, held_out = split(read_notes())
    source = embedded_embedding_model()
    near = find_near(notes, EmbeddingModel(source, threads=threads, many=True))
    vocabulary = load_vocabulary(source)
    model = open_model(folder).to(pick_device()[0])
    train(model, PairStream(notes, near, vocabulary, rounds, Random(seed)).batches())
    weights = {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}
    write_bert(
        file, folder, weights, name="specchat cross-encoder", license="apache-2.0", ranks=True
    )
    _LOG.info(
        "held-out notes: ordered right %.3f, sign right %.3f",
        *evaluate(model, held_out, vocabulary),
    )


if __name__ == "__main__":
    main()
