"""Trains a copy of an EAGLE-3 drafter on the user's answers, beside its file, which stays.

Such a file was trained on other people's answers, so it knows little of one person's subjects. The
replay buffer holds the answers with the target's probabilities where a draft was missed; the states
that the drafter reads come from the target, which reads each answer once more (figures in
engines/README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from datastores.replay_buffer.record import ReplayRecord
from datastores.replay_buffer.store import ReplayBuffer
from engines.distillation.acceptance import answer_acceptances
from engines.distillation.eagle_block import DECAY, DEPTHS, EagleBlock, TextBatch, unroll
from engines.distillation.eagle_file import EagleFile, read_eagle, write_eagle
from engines.distillation.gate import AnswerMean, Quality
from engines.distillation.trainee import STEPS, TrainingSplit
from engines.distillation.trainer import Trainer, TrainingSettings, plan
from engines.distillation.versions import EAGLE_FILE
from engines.fingerprint import fingerprint
from engines.sampler import Sampling
from engines.target import Floats

EAGLE = TrainingSettings(grown=0, rate=1e-3, epochs=3, older=1.0, base=0.0)
"""Training settings of a drafter of the width `MEASURED_WIDTH`. With six epochs, new questions gain
no more (1.71 tokens per step instead of 1.72), and other subjects lose a little more."""
MEASURED_WIDTH = 576
"""The rate falls as the width grows (Yang et al., "Tensor Programs V", arXiv 2203.03466)."""
BATCH_TOKENS = 1024
MAX_TOKENS = 1000
"""Length of the longest text that is learned from, in tokens."""
MAX_STATE_BYTES = 2**29
"""Memory for states, which are kept in 16 bits; older answers are left out."""
SCALED_TEXTS = 16
"""Texts that show how large each of the states' dimensions is."""

ReadStates = Callable[[Sequence[int]], Floats]
"""The states that the drafter reads of the target at a text's tokens, float32 [n, 3 · reads]."""


class EagleTrainee:
    """The drafter in the file `original`, which is never changed.

    Args:
        target: the files of its target.
        read: gives the target's states.
        sampling: as in `Trainee`.
    """

    weights_file = EAGLE_FILE

    def __init__(
        self, original: Path, target: Sequence[Path], read: ReadStates, sampling: Sampling
    ) -> None:
        self.sampling = sampling
        self._original = original
        self._target = target
        self._read = read
        self._states: dict[bytes, NDArray[np.float16]] = {}

    @cached_property
    def origin(self) -> str:
        return fingerprint(self._original)

    def records(self, buffer: ReplayBuffer) -> Iterator[ReplayRecord]:
        """Texts of bounded length whose answers have a token after the root."""
        for record in buffer.records():
            if record.prompt_length + 1 < len(record.tokens) <= MAX_TOKENS:
                yield record

    def measure(self, version: Path | None, split: TrainingSplit) -> Quality:
        file, accepted, steps = self._file(version), [], []
        columns = _columns(file)
        for record in split.held_out:
            drafted = self._drafted(file, record)
            logits = F.pad(drafted[0], (0, 1), value=-torch.inf).numpy()
            first = record.prompt_length + 1
            accepted.append(answer_acceptances(record, first, logits, self.sampling, columns))
            wanted = torch.from_numpy(columns[record.tokens[first:]])
            found = [each.argmax(-1) == wanted[depth:] for depth, each in enumerate(drafted)]
            steps.append(_chain_steps(found))
        lengths = tuple(float(len(each)) for each in accepted)
        totals = tuple(float(each.sum()) for each in accepted)
        return Quality(AnswerMean(totals, lengths), AnswerMean(lengths, tuple(steps)), None)

    def original_base(self, split: TrainingSplit) -> None:
        return None

    def trainer(
        self, version: Path | None, split: TrainingSplit, settings: TrainingSettings
    ) -> Trainer:
        file = self._file(version)
        block, columns = file.block, _columns(file)
        tokens = MAX_STATE_BYTES // (2 * len(block.scale))
        new = _latest(split.new, tokens)
        older = _latest(split.older, tokens - _count(new))
        sizes = [self._states_of(record) for record in new[:SCALED_TEXTS]]
        _rescale(block, torch.from_numpy(np.concatenate(sizes)).float().square().mean(0).sqrt())
        settings = replace(settings, rate=settings.rate * MEASURED_WIDTH / block.shape.width)

        def backward(records: Sequence[ReplayRecord]) -> float:
            with _half_precision():
                loss = self._loss(file, columns, records)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.item()

        return Trainer(block, backward, plan(new, older, (), settings, BATCH_TOKENS), settings)

    def candidates(
        self, version: Path | None, trained: Mapping[str, Tensor]
    ) -> Iterator[Mapping[str, Tensor]]:
        block = self._file(version).block
        _rescale(block, trained["scale"])
        start = block.state_dict()
        for share in STEPS:
            yield {name: torch.lerp(start[name], trained[name], share) for name in start}

    def write(self, weights: Mapping[str, Tensor], path: Path) -> None:
        block = self._file(None).block
        block.load_state_dict(dict(weights))
        write_eagle(self._original, block, path)

    def _file(self, version: Path | None) -> EagleFile:
        return read_eagle(version or self._original, self._target)

    def _loss(
        self, file: EagleFile, columns: NDArray[np.int64], records: Sequence[ReplayRecord]
    ) -> Tensor:
        """The cross-entropy with the target's probabilities, or the emitted tokens where those were
        not recorded."""
        batch = self._batch(records)
        wanted = [_wanted(record, columns, len(file.drafted)) for record in records]
        width = max(tokens.shape[1] for tokens, _ in wanted)
        tokens = torch.zeros(*batch.tokens.shape, width, dtype=torch.long)
        shares = torch.zeros(tokens.shape)
        for row, (own, chances) in enumerate(wanted):
            place = (row, slice(int(batch.starts[row]), int(batch.ends[row])), slice(own.shape[1]))
            tokens[place], shares[place] = torch.from_numpy(own), torch.from_numpy(chances)
        total = torch.zeros(())
        for depth, states in enumerate(unroll(file.block, batch, file.embed, DEPTHS)):
            scored = batch.scored(depth)
            logits = file.block.said(states[scored], file.output).float()
            logs = logits.gather(1, batch.drafted(tokens, depth)[scored])
            logs = logs - logits.logsumexp(1, keepdim=True)
            entropy = -(batch.drafted(shares, depth)[scored] * logs).sum()
            total = total + DECAY**depth * entropy / max(len(logits), 1)
        return total

    @torch.no_grad()
    def _drafted(self, file: EagleFile, record: ReplayRecord) -> list[Tensor]:
        """Logits of what is drafted at each depth behind each token of an answer, if it was drafted
        rightly up to there: [roots - depth, draft vocabulary]."""
        batch, logits = self._batch([record]), []
        with _half_precision():
            for depth, states in enumerate(unroll(file.block, batch, file.embed, DEPTHS)):
                logits.append(file.block.said(states[batch.scored(depth)], file.output).float())
        return logits

    def _batch(self, records: Sequence[ReplayRecord]) -> TextBatch:
        texts, prompts = [one.tokens for one in records], [one.prompt_length for one in records]
        return TextBatch.of(texts, prompts, [self._states_of(one) for one in records], DEPTHS)

    def _states_of(self, record: ReplayRecord) -> NDArray[np.float16]:
        """The target's states at all tokens of a text but the last."""
        read = record.tokens[:-1]
        key = read.tobytes()
        if key not in self._states:
            self._states[key] = self._read(read.tolist()).astype(np.float16)
        return self._states[key]


def _latest(records: Sequence[ReplayRecord], tokens: int) -> list[ReplayRecord]:
    """The latest of `records`, oldest first, that have no more than `tokens` tokens."""
    kept = list(records)
    while _count(kept) > tokens:
        kept.pop(0)
    return kept


def _count(records: Sequence[ReplayRecord]) -> int:
    """The tokens of `records`."""
    return sum(len(record.tokens) for record in records)


def _half_precision() -> torch.autocast:
    """Products in 16 bits, in a third of the time, where the processor has them."""
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.autocast("cpu", torch.bfloat16, enabled=native)


@torch.no_grad()
def _rescale(block: EagleBlock, scale: Tensor) -> None:
    """Let `block` divide its inputs by `scale`, without a change of what it drafts."""
    scale = scale.clamp(min=1e-6)
    block.fc.mul_(scale / block.scale)
    block.scale.copy_(scale)


def _columns(file: EagleFile) -> NDArray[np.int64]:
    """int64 [vocabulary], the place of each token in the draft vocabulary; its size for others."""
    columns = np.full(file.size, len(file.drafted), np.int64)
    columns[file.drafted] = np.arange(len(file.drafted))
    return columns


def _wanted(
    record: ReplayRecord, columns: NDArray[np.int64], outside: int
) -> tuple[NDArray[np.int64], Floats]:
    """Places in the draft vocabulary and probabilities of what may stand at each token, [n, k]."""
    start = record.prompt_length
    count = max(record.top_tokens.shape[1], 1)
    tokens = np.full((len(record.tokens), count), outside, np.int64)
    shares = np.zeros(tokens.shape, np.float32)
    tokens[start:, 0], shares[start:, 0] = columns[record.tokens[start:]], 1.0
    if len(record.positions):
        tokens[record.positions] = columns[record.top_tokens]
        shares[record.positions] = np.exp(record.top_logprobs.astype(np.float32))
    shares[tokens == outside] = 0.0
    tokens[tokens == outside] = 0
    return tokens, shares


def _chain_steps(right: Sequence[Tensor]) -> float:
    """Steps that an answer takes with a chain of drafted tokens.

    Args:
        right: for each depth, whether the token drafted there behind each root is right.
    """
    place = steps = 0
    roots = len(right[0])
    while place < roots:
        run = 0
        while run < len(right) and place + run < roots and right[run][place]:
            run += 1
        place, steps = place + run + 1, steps + 1
    return float(steps)
