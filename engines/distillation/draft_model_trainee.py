"""Trains the draft model: a version is a copy of its GGUF file with other weights.

Against forgetting, it also learns texts that the original draft model knows, with the original's
own probabilities. With the target's, it memorised these texts and did worse on all others that it
had known (figures in `TrainingSettings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord, top_of
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.gate import Quality, Retention, measure_draft_model, measure_retention
from engines.distillation.losses import LOSSES
from engines.distillation.reader import DraftModelReader
from engines.distillation.trainee import STEPS, TrainingSplit
from engines.distillation.trainer import (
    Trainer,
    TrainingSettings,
    draft_model_backward,
    freeze,
    plan,
)
from engines.distillation.versions import DRAFT_MODEL_FILE
from engines.distillation.weights import read_llama_file, write_llama_file
from engines.drafters.draft_model import DraftModel
from engines.fingerprint import fingerprint
from engines.sampler import Sampling

SHARES = (0.85, 0.7)
"""Shares of the way from the original weights, tried after `STEPS`. On this line, gains rise faster
than losses (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"). It starts at the
original draft model, or every version would use up a little more of what may be forgotten."""

LoadDraftModel = Callable[[Path], DraftModel]
"""Loads a file as it will draft. Raises InputError for another vocabulary, ModelError for a file
that does not run."""


class DraftModelTrainee:
    """The draft model in the file `original`, which is never changed."""

    weights_file = DRAFT_MODEL_FILE

    def __init__(self, original: Path, load: LoadDraftModel, sampling: Sampling) -> None:
        self._original = original
        self._load = load
        self.sampling = sampling

    @cached_property
    def origin(self) -> str:
        return fingerprint(self._original)

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        return buffer.records()

    def measure(self, version: Path | None, split: TrainingSplit) -> Quality:
        path = version or self._original
        draft_model, known = self._load(path), split.base_held_out
        return measure_draft_model(path, draft_model, split.held_out, known, self.sampling)

    def original_base(self, split: TrainingSplit) -> Retention | None:
        original = read_llama_file(self._original).model()
        return measure_retention(original, split.base_held_out, self.sampling)

    def trainer(
        self, version: Path | None, split: TrainingSplit, settings: TrainingSettings
    ) -> Trainer:
        draft_model = read_llama_file(version or self._original)
        first = read_llama_file(self._original).shape.hidden
        model = draft_model.grown(first + settings.grown).model()
        if settings.grown:
            freeze(model, first)
        backward = partial(draft_model_backward, model, LOSSES[settings.loss])
        base = self._as_original(split.base) if settings.base else ()
        batches = plan(split.new, split.older, base, settings)
        return Trainer(model, backward, batches, settings)

    def _as_original(self, records: Sequence[ReplayRecord]) -> list[ReplayRecord]:
        """`records` with the original draft model's probabilities instead of the target's."""
        reader, found = DraftModelReader(self._original), []
        for record in records:
            top, logprobs, rest = top_of(reader.answer_logits(record))
            own = replace(
                record,
                positions=np.arange(record.prompt_length, len(record.tokens), dtype=np.int32),
                top_tokens=top,
                top_logprobs=logprobs,
                rest_logprob=rest,
            )
            found.append(own)
        return found

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        origins = [(version or self._original, share) for share in STEPS]
        if version is not None:
            origins += [(self._original, share) for share in SHARES]
        hidden = len(trained["layers.0.gate_proj"])
        for origin, share in origins:
            start = read_llama_file(origin).grown(hidden).weights
            yield {name: torch.lerp(start[name], trained[name], share) for name in start}

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        write_llama_file(self._original, weights, path)
