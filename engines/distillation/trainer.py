"""The training of one round: AdamW over a fixed list of batches, which can be killed and resumed.

Owns the steps and the checkpoint (one safetensors file, replaced atomically). The list of batches
is a pure function of the records and the settings, so a resumed round takes the same steps. Knows
nothing of held-out questions and versions.

Memory: 16 bytes for each weight (float32, its gradient, two moments), some 50 MiB of logits
(`ROW_ELEMENTS`), and activations of `BATCH_TOKENS` tokens. The process of the embedded pair peaks
at 0.6 GB, torch and llama.cpp included; by this count a student of 160 M weights takes 3.2 GB, of
0.5 B 9 GB: it is trained where the memory is free, or not at all. Time: 450 new and 450 known
answers of 42 tokens, 3 epochs, 20 s of one busy core for the embedded student.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from datastores.errors import ModelError, StoreError
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.batches import compare, in_batches, make_batch
from engines.distillation.losses import LOSSES
from engines.distillation.model import Llama
from engines.distillation.weights import StudentFile

BETAS = (0.9, 0.98)
WARM_STEPS = 10
"""Steps over which the rate rises: AdamW's first ones know no scale of the gradient."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a round learns.

    The defaults come from 450 answers of the embedded target to topics that its student had never
    seen, learned from in 3 epochs beside 300 answers to known ones (α at temperature 1, on other
    questions of these topics, and on known ones that were not learned from):

        student                              new topics   known ones
        original                                   .649         .813
        lk, 1e-3                                   .711         .793
        lk, 1e-3, 0.6 of the way (`SHARES`)        .695         .812
        lk, 3e-4                                   .690         .810
        forward-kl, 1e-3                           .698         .781
        lk, 1e-3, half as many known answers       .696         .778   (2 epochs)

    Attributes:
        loss: a name in `LOSSES`.
        rate: the highest learning rate; it falls to a tenth of it.
        epochs: passes over the round's records.
        older: older answers that are learned from again, for each new one.
        base: texts that the original student knows, for each new answer: against forgetting.
        clip: largest norm of the gradient.
        seed: of the order.
    """

    loss: str = "lk"
    rate: float = 1e-3
    epochs: int = 3
    older: float = 1.0
    base: float = 1.0
    clip: float = 1.0
    seed: int = 0


FROM_NOTHING = TrainingSettings(rate=3e-3, epochs=12, older=4.0)
"""For a student that knew nothing before: it has nothing to forget, and much to learn."""


def plan(
    groups: Sequence[Sequence[ReplayRecord]], settings: TrainingSettings
) -> list[list[ReplayRecord]]:
    """The batches of a round: all records of all `groups` in each epoch."""
    rng = Random(settings.seed)
    records = [record for group in groups for record in group]
    epochs = (in_batches(records, rng) for _ in range(settings.epochs))
    return [batch for epoch in epochs for batch in epoch]


class Trainer:
    """A student in training.

    Attributes:
        step: batches done.
        losses: mean loss of each step of this process.
    """

    def __init__(
        self, student: StudentFile, batches: list[list[ReplayRecord]], settings: TrainingSettings
    ) -> None:
        self.model = student.model()
        self.step = 0
        self.losses: list[float] = []
        self._batches = batches
        self._settings = settings
        # Weight decay would pull towards zero, away from what the student knows.
        self._optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=settings.rate, betas=BETAS, weight_decay=0.0
        )

    @property
    def steps(self) -> int:
        """Batches of the whole round."""
        return len(self._batches)

    def run(self) -> Iterator[float]:
        """Take the remaining steps; yields each one's mean loss.

        Raises:
            ModelError: the loss or its gradient is not finite.
        """
        while self.step < self.steps:
            yield self._update(self._batches[self.step])

    def _update(self, records: Sequence[ReplayRecord]) -> float:
        loss = self._accumulate(records)
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(parameters, self._settings.clip).item()
        if not (torch.isfinite(torch.tensor([loss, norm]))).all():
            raise ModelError(
                f"the student's training diverged at step {self.step} (loss {loss:.3g}, gradient"
                f" {norm:.3g})"
            )
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate()
        self._optimiser.step()
        self.step += 1
        self.losses.append(loss)
        return loss

    def _accumulate(self, records: Sequence[ReplayRecord]) -> float:
        """Set the gradients of a batch's mean loss, and return it.

        The states' gradient is summed over pieces of the vocabulary-wide rows before it flows
        through the layers, so only one piece of logits is in memory.
        """
        batch, loss = make_batch(records), LOSSES[self._settings.loss]
        count = len(batch.rows) + len(batch.plain_rows)
        self._optimiser.zero_grad(set_to_none=False)
        states = self.model(batch.ids).flatten(0, 1)
        held = states.detach().requires_grad_()
        total = 0.0
        for log_p, log_q in compare(self.model, held, batch):
            value = loss(log_p, log_q).sum() / count
            value.backward()  # type: ignore[no-untyped-call]
            total += value.item()
        states.backward(held.grad)
        return total

    def _rate(self) -> float:
        """Warm-up, then a straight fall to a tenth."""
        warm = min(1.0, (self.step + 1) / WARM_STEPS)
        return self._settings.rate * warm * (1.0 - 0.9 * self.step / self.steps)

    def digest(self, start: str) -> str:
        """What a checkpoint belongs to: the first weights' fingerprint, settings and batches."""
        found = sha256(f"{start} {self._settings}".encode())
        for batch in self._batches:
            for record in batch:
                found.update(record.tokens.tobytes() + record.top_logprobs.tobytes())
        return found.hexdigest()[:32]

    def save(self, path: Path, digest: str) -> None:
        """Write the checkpoint; an interrupted write leaves the previous one.

        Raises:
            StoreError: it cannot be written.
        """
        state = {f"weight.{name}": each for name, each in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self._optimiser.state[parameter].items():
                state[f"{key}.{name}"] = value
        fresh = path.with_suffix(".new")
        try:
            save_file(state, fresh, {"digest": digest, "step": str(self.step)})
            os.replace(fresh, path)
        except (OSError, SafetensorError) as error:
            fresh.unlink(missing_ok=True)
            raise StoreError(f"cannot write {path}: {error}") from error

    def resume(self, path: Path, digest: str) -> bool:
        """Go on from a checkpoint of this very round; returns whether there was one."""
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                if about.get("digest") != digest:
                    return False
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                self._restore(state, int(about["step"]))
        except (OSError, SafetensorError, ValueError, KeyError):
            return False  # none, or a damaged one: the round begins again
        return True

    def _restore(self, state: dict[str, Tensor], step: int) -> None:
        keys = ("step", "exp_avg", "exp_avg_sq")
        names = dict(self.model.named_parameters())
        moments = {name: {key: state[f"{key}.{name}"] for key in keys} for name in names}
        self.model.load_state_dict({name: state[f"weight.{name}"] for name in names})
        for name, parameter in names.items():
            self._optimiser.state[parameter] = moments[name]
        self.step = step


def mean_acceptance(model: Llama, records: Sequence[ReplayRecord]) -> float:
    """Σ min(p, q), averaged over all positions of all answers; 0 without records."""
    from engines.distillation.losses import acceptance

    found: list[Tensor] = []
    with torch.no_grad():
        for group in in_batches(records, Random(0)) if records else []:
            batch = make_batch(group)
            hidden = model(batch.ids).flatten(0, 1)
            found += [acceptance(log_p, log_q) for log_p, log_q in compare(model, hidden, batch)]
    return torch.cat(found).mean().item() if found else 0.0
