"""A tiny draft model, a target it can learn from, and the target's answers in a replay buffer."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from datastores.replay_buffer.record import ReplayRecord, question_key, top_of
from datastores.replay_buffer.states import encode
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.acceptance import WHOLE
from engines.distillation.draft_model_trainee import DraftModelTrainee, LoadDraftModel
from engines.distillation.model import Llama
from engines.distillation.round import RoundResult, TrainingStep, run_round
from engines.distillation.trainer import TrainingSettings
from engines.distillation.weights import read_llama_file
from engines.drafters.draft_model import DraftModel
from engines.llama.model import load
from tests.engines.tiny import TinyVocabulary, write_llama

PROMPT, ANSWER, WORDS = 4, 24, 40
SETTINGS = TrainingSettings(grown=0, rate=3e-3, epochs=3, older=1.0, base=1.0)


def load_draft_model(path: Path) -> DraftModel:
    """As the product does it, but for the check of the vocabulary."""
    model = load(path, threads=1, gpu_layers=0, context_length=256)
    return DraftModel(model.target, model.vocabulary.stops)


@dataclass
class Workspace:
    """A draft model's file, a folder for its versions, and a buffer."""

    draft_model: Path
    folder: Path
    buffer: ReplayBuffer

    def round(
        self,
        settings: TrainingSettings = SETTINGS,
        load: LoadDraftModel = load_draft_model,
        base: list[ReplayRecord] | None = None,
    ) -> Generator[TrainingStep | RoundResult]:
        """One round."""
        trainee = DraftModelTrainee(self.draft_model, load, WHOLE)
        return run_round(self.buffer, trainee, self.folder, base=base or [], settings=settings)

    def run(
        self, settings: TrainingSettings = SETTINGS, base: list[ReplayRecord] | None = None
    ) -> RoundResult:
        """One whole round."""
        *_, result = self.round(settings, base=base)
        assert isinstance(result, RoundResult)
        return result


_given: dict[int, list[ReplayRecord]] = {}
"""The answers of the target, by their number: every workspace has the same ones."""


@contextmanager
def open_workspace(folder: Path, answers: int = 90) -> Iterator[Workspace]:
    """A workspace whose buffer holds `answers` answers of one target."""
    draft_model = write_llama(folder / "draft-model.gguf", TinyVocabulary())
    size = read_llama_file(draft_model).shape.vocabulary
    with closing(ReplayBuffer.open(folder / "replay.db", "target", size)) as buffer:
        if answers and answers not in _given:
            _given[answers] = make_records(make_target(draft_model, 1), answers, 1)
        for record in _given.get(answers, []):
            buffer.add(f"chat:{record.chat}", record)
        yield Workspace(draft_model, folder / "versions", buffer)


def make_target(draft_model: Path, seed: int) -> Llama:
    """The draft model with other output weights: what it does not know yet."""
    model = read_llama_file(draft_model).model()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                spread = float(parameter.std())
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=spread)
    return model


@torch.no_grad()
def make_records(target: Llama, count: int, seed: int) -> list[ReplayRecord]:
    """Greedy answers to different questions: states, and probabilities at every other position."""
    generator = torch.Generator().manual_seed(seed)
    ids = 10 + torch.randint(0, WORDS, (count, PROMPT), generator=generator)
    for _ in range(ANSWER):
        following = target.logits(target(ids)[:, -1]).argmax(dim=1, keepdim=True)
        ids = torch.cat((ids, following), dim=1)
    hidden = target(ids)
    logits = target.logits(hidden).numpy()
    positions = np.arange(PROMPT, PROMPT + ANSWER, 2, dtype=np.int32)
    records = []
    for number in range(count):
        key = question_key(f"question {seed} {number}")
        tokens = ids[number].numpy().astype(np.int32)
        tops = top_of(logits[number, positions - 1])
        states = encode(hidden[number, PROMPT - 1 : -1].numpy())
        columns = tokens, PROMPT, positions, *tops, states
        records.append(ReplayRecord(0, number + 1, 1.0, key, key, *columns))
    return records
