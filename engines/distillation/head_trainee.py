"""Trains the draft head, from scratch, on the states of the user's answers.

Besides torch it needs memory for the reservoir, a byte per element, and for the rows of the draft
vocabulary: with 100 thousand states and 8,192 tokens 35 MB for a target of width 256, 550 MB for
one of 4,096.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.gate import (
    MAX_SIMULATED,
    AnswerMean,
    Quality,
    tokens_per_step,
    tree_steps,
)
from engines.distillation.head import (
    SAMPLED_STATES,
    DraftVocabulary,
    HeadModel,
    draft_vocabulary,
    frequent_tokens,
    head_loss,
    make_head_batch,
    read_weights,
    trainable,
    write_head,
)
from engines.distillation.output_matrix import OutputMatrix
from engines.distillation.payoff import PassCosts, measure_payoff
from engines.distillation.reader import HeadReader
from engines.distillation.trainee import STEPS, TrainingSplit
from engines.distillation.trainer import Trainer, TrainingSettings, plan
from engines.distillation.versions import HEAD_FILE
from engines.drafters.head import HeadDrafter, read_head
from engines.sampler import Sampling
from engines.target import Floats

HEAD = TrainingSettings(grown=0, rate=3e-3, epochs=12, older=4.0, base=0.0)
"""Training settings of a head."""
BATCH_TOKENS = 512
"""Tokens of a batch, including prompts, which teach nothing: some 250 states."""


class HeadTrainee:
    """The head for the target with a given output matrix and fingerprint."""

    weights_file = HEAD_FILE

    def __init__(
        self,
        matrix: OutputMatrix,
        fingerprint: str,
        stops: frozenset[int],
        sampling: Sampling,
        costs: PassCosts | None = None,
    ) -> None:
        """Args:
        stops: tokens that end an answer.
        sampling: as in `Trainee`.
        costs: the target's on this machine; None if unknown, when a head need not pay off.
        """
        self.origin = fingerprint
        self._matrix = matrix
        self._stops = stops
        self.sampling = sampling
        self._costs = costs
        self._vocabulary: DraftVocabulary | None = None

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        return (record for record in buffer.records(with_states=True) if trainable(record))

    def measure(self, version: Path | None, split: TrainingSplit) -> Quality:
        simulated = split.held_out[-MAX_SIMULATED:]
        if version is None:
            nothing = AnswerMean(*[(0.0,) * len(split.held_out)] * 2)
            return Quality(nothing, tokens_per_step(tree_steps([], simulated)), None)
        head = read_head(version, self.origin, self._matrix.width, self._matrix.size)
        tree = tokens_per_step(tree_steps([HeadDrafter(head, self._stops)], simulated))
        reader = HeadReader(version, self._matrix)
        found = [reader.acceptances(record, self.sampling) for record in split.held_out]
        totals = tuple(float(each.sum()) for each in found)
        counts = tuple(float(len(each)) for each in found)
        payoff = measure_payoff(head, split.held_out, self._costs) if self._costs else None
        return Quality(AnswerMean(totals, counts), tree, None, payoff)

    def original_base(self, split: TrainingSplit) -> None:
        return None

    def trainer(
        self, version: Path | None, split: TrainingSplit, settings: TrainingSettings
    ) -> Trainer:
        tokens = frequent_tokens([*split.new, *split.older], self._matrix.size)
        vocabulary = self._vocabulary = draft_vocabulary(self._matrix, tokens)
        torch.manual_seed(settings.seed)
        model = HeadModel(self._matrix.width)
        if version is not None:
            model.load_state_dict(read_weights(version)[0])
        else:
            states = torch.from_numpy(_first_states(split.new))
            model.fit_output(states * vocabulary.spread)

        def backward(records: Sequence[ReplayRecord]) -> float:
            loss = head_loss(model, make_head_batch(records, vocabulary), vocabulary)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

        batches = plan(split.new, split.older, (), settings, BATCH_TOKENS)
        return Trainer(model, backward, batches, settings)

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        if version is None:
            yield trained
            return
        start = read_weights(version)[0]
        for share in STEPS:
            yield {name: torch.lerp(start[name], trained[name], share) for name in start}

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        assert self._vocabulary is not None, "weights come from `trainer`"
        write_head(weights, self._vocabulary, self.origin, path)


def _first_states(records: Sequence[ReplayRecord]) -> Floats:
    """The first `SAMPLED_STATES` states of `records`, or all; no others are decoded."""
    parts: list[Floats] = []
    left = SAMPLED_STATES
    for record in records:
        parts.append(record.states.decoded()[:left])
        left -= len(parts[-1])
        if not left:
            break
    return np.concatenate(parts)
