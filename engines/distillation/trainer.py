"""The training of one round: Adam over a fixed list of batches, which can be killed and resumed.

The checkpoint is one safetensors file, replaced atomically. The list of batches is a pure function
of the records and the settings, so a resumed round takes the same steps.

Memory: 20 bytes for each weight of the feed-forward layers (float32, its gradient, two moments, a
mask), 4 for each other one, some 50 MiB of logits (`ROW_ELEMENTS`), and activations of
`BATCH_TOKENS` tokens. The process of the embedded pair peaks at 0.4 GB, torch and llama.cpp
included; a draft model of 182 M weights with 128,256 tokens takes 2.0 GB and 2.7 s of CPU a step.
Time: 500 new answers of 44 tokens to the embedded draft model, in five rounds, take some 400 s.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.adam import adam

from datastores.errors import ModelError, StoreError
from datastores.replay_buffer.record import ReplayRecord
from engines.distillation.batches import BATCH_TOKENS, in_batches, make_batch, pieces
from engines.distillation.losses import Loss, events
from engines.distillation.model import Llama

BETAS = (0.9, 0.98)
WARM_STEPS = 10
"""Steps of warm-up, while Adam's moments do not yet know the scale of the gradient."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a round learns.

    The defaults come from 200 answers of the embedded target on topics that its draft model had
    never seen, in two rounds. Agreement at temperature 0 on questions that were asked twice, on new
    ones of the same topics, and on 300 known ones that were not learned from:

        neurons grown, known texts (`base`), epochs       twice    new  known
        original draft model                               .697   .608   .877
        512, 4.0 with the target's probabilities, 6        .884   .630   .838
        512, 4.0 with its own probabilities, 8             .905   .661   .870
        1,024, 4.0 with its own probabilities, 8           .912   .668   .871

    A pass of the draft model takes .27 ms originally, .32 ms with 512 neurons more and .39 ms with
    1,024. When every weight learned, it forgot far more (known .771), and the loss made little
    difference (α on new questions: lk .711, forward-kl .698).

    Attributes:
        loss: a name in `LOSSES`.
        grown: neurons added to each feed-forward layer of the original draft model. They alone
            learn: a feed-forward layer is a memory of keys and values (Geva et al. 2021), whose old
            entries keep serving old questions. With 0, everything learns.
        rate: the highest learning rate, which decays to a tenth.
        epochs: epochs over the new records.
        older: older answers replayed in each epoch, per new one.
        base: known texts of the original draft model replayed likewise, against forgetting.
        clip: largest norm of the gradient.
        seed: for the order of the records.
    """

    loss: str = "lk"
    grown: int = 1024
    rate: float = 3e-3
    epochs: int = 8
    older: float = 2.0
    base: float = 4.0
    clip: float = 1.0
    seed: int = 0


FROM_NOTHING = TrainingSettings(grown=0, epochs=12, older=4.0, base=0.0)
"""For a draft model with random weights, which has nothing to forget and much to learn."""
PRUNED = replace(FROM_NOTHING, rate=2e-3, epochs=6)
"""For a pruned draft model, which learns faster, and forgets at a higher rate."""


def plan(
    new: Sequence[ReplayRecord],
    older: Sequence[ReplayRecord],
    base: Sequence[ReplayRecord],
    settings: TrainingSettings,
    most: int = BATCH_TOKENS,
) -> list[list[ReplayRecord]]:
    """The batches of a round: in each epoch all `new` records and a sample of the others.

    Of `older` records, those whose question was asked more than once come first. All repeated
    questions occur twice, since they are the most likely to be asked again.

    Args:
        most: tokens of a batch.
    """
    rng = Random(settings.seed)
    times = Counter(record.question for record in (*new, *older))
    repeated = [record for record in older if times[record.question] > 1]
    once = [record for record in older if times[record.question] == 1]
    batches = []
    for _ in range(settings.epochs):
        replayed = _sample(repeated, settings.older * len(new), rng)
        replayed += _sample(once, settings.older * len(new) - len(replayed), rng)
        again = [record for record in (*new, *replayed) if times[record.question] > 1]
        known = _sample(base, settings.base * len(new), rng)
        batches += in_batches([*new, *replayed, *again, *known], rng, most)
    return batches


def _sample(records: Sequence[ReplayRecord], count: float, rng: Random) -> list[ReplayRecord]:
    return rng.sample(records, min(round(count), len(records)))


LOGGER = logging.getLogger("specchat.distillation")

Backward = Callable[[Sequence[ReplayRecord]], float]
"""Adds the gradients of a batch's mean loss, and returns the loss."""


class Trainer:
    """A model in training.

    Attributes:
        step: number of batches done.
    """

    def __init__(
        self,
        model: nn.Module,
        backward: Backward,
        batches: list[list[ReplayRecord]],
        settings: TrainingSettings,
    ) -> None:
        """Args:
        model: trained in its parameters that require a gradient.
        """
        self.model = model
        self.step = 0
        self._backward = backward
        self._batches = batches
        self._settings = settings
        self._moments = {
            name: {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            for name, parameter in self._learning().items()
        }

    @property
    def steps(self) -> int:
        """Number of batches of the whole round."""
        return len(self._batches)

    def run(self) -> Iterator[float]:
        """Take the remaining steps; yields each one's mean loss.

        Raises:
            ModelError: the loss or its gradient is not finite.
        """
        while self.step < self.steps:
            yield self._update(self._batches[self.step])

    def _update(self, records: Sequence[ReplayRecord]) -> float:
        torch.manual_seed(self._settings.seed + self.step)  # the same after `resume`
        self.model.zero_grad(set_to_none=False)
        loss = self._backward(records)
        learning = self._learning().values()
        norm = torch.nn.utils.clip_grad_norm_(learning, self._settings.clip).item()
        if not (torch.isfinite(torch.tensor([loss, norm]))).all():
            raise ModelError(
                f"training diverged at step {self.step} (loss {loss:.3g}, gradient {norm:.3g})"
            )
        self._descend()
        self.step += 1
        return loss

    @torch.no_grad()
    def _descend(self) -> None:
        """One step of Adam, without weight decay, which would erase what a draft model knows.

        It calls torch's function, since `torch.optim.Adam` imports its compiler, which takes two
        seconds.
        """
        learning = self._learning()
        moments = [self._moments[name] for name in learning]
        adam(
            list(learning.values()),
            [each.grad for each in learning.values() if each.grad is not None],
            [each["exp_avg"] for each in moments],
            [each["exp_avg_sq"] for each in moments],
            [],
            [each["step"] for each in moments],
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self._rate(),
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def _learning(self) -> dict[str, Tensor]:
        every = self.model.named_parameters()
        return {name: parameter for name, parameter in every if parameter.requires_grad}

    def _rate(self) -> float:
        """Warm-up, then linear decay to a tenth."""
        warm = min(1.0, (self.step + 1) / WARM_STEPS)
        return self._settings.rate * warm * (1.0 - 0.9 * self.step / self.steps)

    def digest(self, start: str) -> str:
        """Identifies a checkpoint's round: fingerprint of the first weights, settings, batches."""
        found = sha256(f"{start} {self._settings}".encode())
        for batch in self._batches:
            for record in batch:
                found.update(record.tokens.tobytes() + record.top_logprobs.tobytes())
        return found.hexdigest()[:32]

    def save(self, path: Path, digest: str) -> None:
        """Write the checkpoint; an interrupted write leaves the previous one.

        Raises:
            StoreError: the checkpoint cannot be written.
        """
        state = {f"weight.{name}": each for name, each in self.model.state_dict().items()}
        for name, moments in self._moments.items():
            for key, value in moments.items():
                state[f"{key}.{name}"] = value
        fresh = path.with_suffix(".new")
        try:
            about = {"digest": digest, "step": str(self.step), "content": _content(state)}
            save_file(state, fresh, about)
            os.replace(fresh, path)
        except (OSError, SafetensorError) as error:
            fresh.unlink(missing_ok=True)
            raise StoreError(f"cannot write {path}: {error}") from error

    def resume(self, path: Path, digest: str) -> bool:
        """Continue from a checkpoint of this very round; returns whether there was one."""
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                if about.get("digest") != digest:
                    return False
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                if about["content"] != _content(state):
                    raise ValueError("it is damaged")
                self._restore(state, int(about["step"]))
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            # It is missing, damaged or of other sizes, so the round starts again.
            if path.exists():
                LOGGER.info("%s is not continued: %s", path, error)
            return False
        return True

    def _restore(self, state: dict[str, Tensor], step: int) -> None:
        own = self.model.state_dict()
        moments = {
            name: {key: state[f"{key}.{name}"] for key in kept}
            for name, kept in self._moments.items()
        }
        # `load_state_dict` would load what fits before it rejects the rest.
        if any(state[f"weight.{name}"].shape != each.shape for name, each in own.items()):
            raise ValueError("its weights have other sizes")
        self.model.load_state_dict({name: state[f"weight.{name}"] for name in own})
        self._moments = moments
        self.step = step


def _content(state: Mapping[str, Tensor]) -> str:
    """A checksum: one wrong bit could make a weight so large that no later round succeeds."""
    found = sha256()
    for name in sorted(state):
        found.update(state[name].detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def draft_model_backward(model: Llama, loss: Loss, records: Sequence[ReplayRecord]) -> float:
    """The `Backward` of a draft model.

    The gradient of the states is summed over pieces of the logits before it flows through the
    layers, so that only one piece of logits is in memory.
    """
    batch = make_batch(records)
    count = len(batch.rows) + len(batch.plain_rows)
    states = model(batch.ids).flatten(0, 1)
    held = states.detach().requires_grad_()
    total = 0.0
    for logits, tokens, log_p in pieces(model, held, batch):
        value = loss(log_p, events(logits, tokens)).sum() / count
        value.backward()  # type: ignore[no-untyped-call]
        total += value.item()
    states.backward(held.grad)
    return total


def freeze(model: Llama, neurons: int) -> None:
    """Train only the neurons of the feed-forward layers after the first `neurons`."""
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_proj", "up_proj", "down_proj")):
            mask = torch.ones_like(parameter)
            mask[
                (slice(None), slice(neurons)) if name.endswith("down_proj") else slice(neurons)
            ] = 0
            parameter.register_hook(mask.mul)  # type: ignore[no-untyped-call]
        else:
            parameter.requires_grad_(False)
