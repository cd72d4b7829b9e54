"""What the recipes of drafters share: what they learn from, a step of training, and their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import gguf
import torch
from torch import Tensor, nn

from engines.distillation.export import add_sizes
from engines.distillation.model import LlamaShape
from engines.distillation.weights import copy_entries
from engines.llama.gguf import DRAFT_VOCABULARY

if TYPE_CHECKING:
    from assets.recipe.eagle_data import ReadChat

HELD_OUT = 10
"""One in this many questions is held out."""
DRAFT_TOKENS = 4096
"""Size of the draft vocabulary, with .86 of held-out tokens. Twice as many make .447 of an EAGLE-3
drafter's first tokens right instead of .443, and take a fifth more time."""


@dataclass(frozen=True)
class TargetMatrices:
    """The target's embeddings [vocabulary, width] and the draft vocabulary's output rows."""

    embeddings: Tensor
    output: Tensor
    drafted: Tensor


def split(chats: Sequence[ReadChat]) -> tuple[list[ReadChat], list[ReadChat]]:
    """Chats to learn from, and those about held-out questions."""
    parts: tuple[list[ReadChat], list[ReadChat]] = ([], [])
    for chat in chats:
        parts[crc32(chat.tokens[: chat.prompt].tobytes()) % HELD_OUT == 0].append(chat)
    return parts


def draft_vocabulary(chats: Sequence[ReadChat], vocabulary: int) -> Tensor:
    """The most frequent tokens of answers, and the first ones of the vocabulary."""
    counts = Counter(int(token) for chat in chats for token in chat.tokens[chat.prompt :])
    tokens = [token for token, _ in counts.most_common(DRAFT_TOKENS)]
    known = set(tokens)
    more = (token for token in range(vocabulary) if token not in known)
    tokens += [token for _, token in zip(range(DRAFT_TOKENS - len(tokens)), more, strict=False)]
    return torch.tensor(sorted(tokens))


def divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    """The mean divergence KL(softmax(wanted) ‖ softmax(logits)) of rows [n, vocabulary]."""
    value: Tensor = _Divergence.apply(logits, wanted)  # type: ignore[no-untyped-call]
    return value


class _Divergence(torch.autograd.Function):
    """torch's own takes twice as long, and twice the memory, as it keeps the logarithms of both."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, wanted: Tensor) -> Tensor:
        """Keeps the slope, which is the difference of the distributions."""
        given, expected = logits.float(), wanted.float().log_softmax(-1)
        given = given - given.logsumexp(-1, keepdim=True)
        shares = expected.exp()
        value: Tensor = (shares * (expected - given)).sum() / len(logits)
        ctx.save_for_backward(given.exp_().sub_(shares).to(logits.dtype))
        return value

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        """The slope of `logits` only."""
        (difference,) = ctx.saved_tensors
        return difference * (slope / len(difference)).to(difference.dtype), None


def update(optimiser: torch.optim.Optimizer, rate: float, loss: Tensor) -> None:
    """One step of training at the learning rate `rate`, with the slope's norm limited to 1."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    nn.utils.clip_grad_norm_(weights, 1.0)
    optimiser.step()


def drafter_writer(
    path: Path, name: str, architecture: str, source: Path, shape: LlamaShape, layers: list[int]
) -> gguf.GGUFWriter:
    """The writer of a drafter of `shape` that reads `layers` of the model in `source`."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    copy_entries(gguf.GGUFReader(source), writer, "tokenizer.")
    add_sizes(writer, shape)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_array(f"{architecture}.target_layers", layers)
    return writer


def finish(
    writer: gguf.GGUFWriter,
    tensors: Mapping[str, Tensor],
    drafted: Tensor,
    halves: Collection[str] = (),
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
) -> None:
    """Write the file of a drafter: matrices of type `kind`, those named in `halves` in F16."""
    for name, tensor in tensors.items():
        values = tensor.detach().float().numpy()
        own = gguf.GGMLQuantizationType.F32
        if values.ndim > 1:
            own = gguf.GGMLQuantizationType.F16 if name in halves else kind
        quantised = gguf.quants.quantize(values, own)
        writer.add_tensor(f"{name}.weight", quantised, raw_dtype=own)
    writer.add_tensor(DRAFT_VOCABULARY, drafted.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
