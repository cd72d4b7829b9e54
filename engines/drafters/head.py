"""The draft head: a small network on the target's last hidden state, trained on this machine.

It serves targets without a small model of the same family. It reads the state that produced the
root, which encodes what the target is about to say, and the last few tokens; each step gives the
probabilities of one further token and advances its own state (ReDrafter, arXiv 2403.09919; Hydra,
2402.05109). Its output is a draft vocabulary, the tokens that this user's answers use most
(FR-Spec, 2502.14856), through rows of the target's own output matrix after a low-rank map, so that
a token that training has never seen has a sensible row too.

    z₀ = P·h + Σⱼ Qⱼ·e(xₜ₋ⱼ)                          h: the state; xₜ: the root; j from 1 on
    zₖ = zₖ₋₁ + D·(silu(G·c) ∘ U·c)                   c: zₖ₋₁, normed, and e of the latest token
    logits = rows·(O·norm(zₖ))                        rows [tokens, rank], e [tokens, size]: folded

It is NumPy: a step streams a few megabytes of weights, and torch takes seconds to import. For a
target of width 4,096 and 8,192 tokens a step takes 0.9 ms on two slow cores, 1.5 ms with cold
caches. Drafting is in `engines.drafters.model_drafter`, training in `engines.distillation.head`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datastores.errors import InputError, ModelError
from engines.draft_tree import HEAD, DraftTree
from engines.drafters.model_drafter import ModelDrafter
from engines.step import Context
from engines.target import Floats

FORMAT = "specchat-head-1"
EPSILON = 1e-6
"""Added to the mean square that a norm divides by."""
RECENT = 4
"""Tokens that it reads, the root included."""
MAX_DEPTH = 5
"""Most tokens drafted; it is trained on the first few of them."""
NETWORK = ("state", "recent", "gate", "up", "down", "output")
FOLDED = ("rows", "embeddings")
"""Names of the weights in the file that inference needs; the others are for training."""


@dataclass(frozen=True, slots=True)
class Head:
    """A loaded head, of state size d, embedding size e, rank r and n tokens.

    Attributes:
        target: fingerprint of the model that it drafts for.
        vocabulary: size of the target's vocabulary.
        tokens: int64 [n], the draft vocabulary.
        network: float32: state [d, width], recent [d, (RECENT - 1)·e], gate and up [2d, d + e],
            down [d, 2d], output [r, d].
        rows: float32 [n, r].
        embeddings: float32 [n + 1, e]; the last row is for tokens outside the draft vocabulary.
    """

    target: str
    vocabulary: int
    tokens: NDArray[np.int64]
    network: dict[str, Floats]
    rows: Floats
    embeddings: Floats

    @property
    def width(self) -> int:
        """Length of the target's states."""
        return int(self.network["state"].shape[1])


def read_head(path: Path, target: str, width: int, vocabulary: int) -> Head:
    """Read a head for the model of the fingerprint `target`.

    Raises:
        InputError: the head was made for another model.
        ModelError: the file cannot be read, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {})["about"])
            weights = {name: file.get_tensor(name) for name in (*NETWORK, *FOLDED, "tokens")}
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']}")
        found = about["target"], about["width"], about["vocabulary"]
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path} is not a draft head, or is damaged: {error}") from error
    if found != (target, width, vocabulary):
        raise InputError(
            f"{path} was made for another model, of width {found[1]} with {found[2]} tokens, not"
            f" {width} with {vocabulary}: `specchat draft reset --head` deletes it"
        )
    head = _assemble(weights, target, vocabulary)
    _require_sound(path, head, width)
    return head


def _assemble(weights: dict[str, NDArray[np.generic]], target: str, vocabulary: int) -> Head:
    floats = {name: weights[name].astype(np.float32) for name in (*NETWORK, *FOLDED)}
    embeddings = floats.pop("embeddings")
    return Head(
        target,
        vocabulary,
        weights["tokens"].astype(np.int64),
        network=floats,
        rows=floats.pop("rows"),
        embeddings=np.concatenate([embeddings, np.zeros((1, embeddings.shape[1]), np.float32)]),
    )


def _require_sound(path: Path, head: Head, width: int) -> None:
    size, embedded = head.network["state"].shape[0], head.embeddings.shape[1]
    expected = {
        "state": (size, width),
        "recent": (size, (RECENT - 1) * embedded),
        "gate": (2 * size, size + embedded),
        "up": (2 * size, size + embedded),
        "down": (size, 2 * size),
        "output": (head.rows.shape[1], size),
    }
    arrays = [*head.network.values(), head.rows, head.embeddings]
    tokens = head.tokens
    fits = (
        all(head.network[name].shape == shape for name, shape in expected.items())
        and len(head.rows) == len(tokens) == len(head.embeddings) - 1 > 0
        and len(np.unique(tokens)) == len(tokens)
        and 0 <= tokens.min() <= tokens.max() < head.vocabulary
        and all(np.isfinite(array).all() for array in arrays)
    )
    if not fits:
        raise ModelError(f"{path} is a damaged draft head: its weights do not fit together")


class HeadText:
    """The text that the head continues. Implements `model_drafter.DraftingModel`.

    Attributes:
        hidden: float32 [width], the state that produced the root; [0] if it is unknown.
    """

    context_length = sys.maxsize
    max_depth = MAX_DEPTH

    def __init__(self, head: Head) -> None:
        self.hidden: Floats = np.zeros(0, np.float32)
        self._head = head
        self._state: Floats | None = None
        self._index = np.full(head.vocabulary, len(head.tokens), np.int64)
        self._index[head.tokens] = np.arange(len(head.tokens))
        self._row = np.full(head.vocabulary, -np.inf, np.float32)
        self.draft_vocabulary = head.tokens

    def begin(self, tokens: Sequence[int]) -> int:
        """See `DraftingModel.begin`: the root is unread; 0 where the state is unknown."""
        self._state = None
        return 1 if self.hidden.size else 0

    def read(self, count: int) -> None:
        """See `DraftingModel.read`: only the root is ever unread."""

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """See `DraftingModel.next_rows`: one row."""
        net, embeddings = self._head.network, self._head.embeddings
        if self._state is None:
            before = [int(self._index[token]) for token in reversed(tokens[-RECENT:-1])]
            before += [len(embeddings) - 1] * (RECENT - 1 - len(before))
            recent = embeddings[before].ravel()
            self._state = net["state"] @ _normed(self.hidden) + net["recent"] @ recent
        state = self._state
        seen = np.concatenate([_normed(state), embeddings[self._index[tokens[-1]]]])
        gate = net["gate"] @ seen
        # A large negative gate is 0, even if its exponential overflows.
        with np.errstate(over="ignore"):
            gate /= 1.0 + np.exp(-gate)
        gate *= net["up"] @ seen
        self._state = state + net["down"] @ gate
        self._row[self._head.tokens] = self._head.rows @ (net["output"] @ _normed(self._state))
        return self._row[None]


def _normed(vector: Floats) -> Floats:
    scale = np.float32(1.0 / np.sqrt(vector @ vector / len(vector) + EPSILON))
    scaled: Floats = vector * scale
    return scaled


class HeadDrafter(ModelDrafter):
    """Drafts with the head; nothing is drafted after one of the `stops` tokens."""

    name = "head"
    origin = HEAD
    subject = "the draft head"

    def __init__(self, head: Head, stops: frozenset[int]) -> None:
        self._text = HeadText(head)
        super().__init__(self._text, stops)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable rows of a chain with branches; none where the state is unknown."""
        self._text.hidden = context.hidden
        return super().propose(context, limit)
