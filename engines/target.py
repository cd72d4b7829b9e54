"""The target protocol: what the decode loop asks of a loaded model.

`engines.llama` (llama.cpp, the default) and `engines.hf.target` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ContextOverflowError
from engines.draft_tree import DraftTree

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """The output of one forward pass. Views: valid until the target's next call.

    Attributes:
        logits: float32 [rows, vocabulary].
        hidden: float32 [rows, width], the last hidden state after the final norm (W_out · h =
            logits).
    """

    logits: Floats
    hidden: Floats


class Target(Protocol):
    """A loaded model with one KV cache, which holds `tokens` and nothing else."""

    @property
    def fingerprint(self) -> str:
        """Stable identity of the weights: the key of its hidden states and statistics."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def width(self) -> int:
        """Length of a hidden state; 0 where the engine outputs none."""

    @property
    def context_length(self) -> int:
        """Most tokens that the KV cache holds."""

    @property
    def max_rows(self) -> int:
        """The widest tree `verify` takes, the root included; 1 where rewinding is impossible."""

    @property
    def chains_only(self) -> bool:
        """Whether only unbranched drafts may be verified (exact mode, recurrent models)."""

    @property
    def rollback_rows(self) -> int:
        """Rows that `commit` can drop in place; `max_rows` where it can drop any number.

        To drop more (a recurrent memory cannot be rewound), it restores a checkpoint that `verify`
        saved, and re-evaluates the rows it keeps in a separate pass.
        """

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids in the KV cache, in order."""

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Make the cache hold exactly `tokens`, evaluating only what follows the common prefix.

        Yields the number of tokens in the cache after each chunk; a caller that stops iterating
        leaves a valid, shorter cache. At least the last token is always evaluated, so that
        `last_row` is fresh at the end.

        Raises:
            ContextOverflowError: `tokens` is longer than the context.
        """

    @property
    def last_row(self) -> ForwardOutput:
        """The row of the last prefilled token; valid until the next call.

        Raises:
            RuntimeError: no prefill has finished since the cache was last changed.
        """

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """Evaluate every row of `tree` after the cached tokens in one forward pass.

        Row 0 is the root, at position len(self.tokens). The cache holds the tree until `commit`.

        Raises:
            ContextOverflowError: the tree does not fit after the cached tokens.
            ValueError: the tree has more than `max_rows` rows.
        """

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of the last verified tree on `path` (root first) and drop the others.

        Raises:
            RuntimeError: no tree was verified since the last commit or rewind.
        """

    def rewind(self, length: int) -> None:
        """Cut the cache down to its first `length` tokens."""


Stop = Callable[[], bool]
"""Whether what is being computed is wanted no longer."""


class StoppedError(Exception):
    """What was to be computed is wanted no longer."""


class LayerStates(Protocol):
    """Reads states in the middle of a model, apart from its target's KV cache."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers after which states are read, from 0, in ascending order."""

    @property
    def width(self) -> int:
        """Length of a state."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of a text."""

    def read(
        self, beginning: Sequence[int], ends: Sequence[Sequence[int]], stop: Stop = lambda: False
    ) -> Floats:
        """The residual stream at the last token of each text that is `beginning` and one of `ends`.

        The beginning is evaluated once, and what the last call's began with not again.

        Args:
            stop: whether the states are wanted no longer; asked some times a second.

        Returns:
            float32 [ends, layers, width].

        Raises:
            StoppedError: `stop` said so.
            ModelError: the model cannot evaluate them.
            ValueError: an end is empty, or a text is longer than `max_tokens`.
        """


@runtime_checkable
class ParkingTarget(Protocol):
    """A target that can keep the states of further texts besides the cached one."""

    def park(self) -> None:
        """Keep the cached text's state, and drop the least recently used ones beyond a limit.

        A later `prefill` of a text with a prefix of a parked one evaluates only the rest. No effect
        where only whole texts can be loaded.
        """

    def drop_parked(self) -> None:
        """Drop all parked texts."""

    def cached_prefix(self, tokens: Sequence[int]) -> int:
        """Length of the longest prefix of `tokens` that is cached or parked."""


@runtime_checkable
class SavableTarget(Protocol):
    """A target whose cached tokens can be saved and loaded instead of evaluated again."""

    @property
    def state_key(self) -> str:
        """Everything that a saved state depends on: weights, build, precision, context."""

    @property
    def state_block(self) -> int:
        """Tokens to save at a time; 0 where the cached text can only be saved as a whole."""

    def save_state(self, start: int, end: int) -> NDArray[np.uint8]:
        """The state of the cached tokens from `start` to `end`, uint8 [bytes], in new memory.

        Raises:
            ModelError: this model's state cannot be saved.
        """

    def load_state(self, tokens: Sequence[int], state: NDArray[np.uint8]) -> None:
        """Append `tokens` to the cached ones, with the state that was saved at this position.

        Raises:
            ContextOverflowError: they do not fit into the context.
            ModelError: the state is rejected; the cache is unchanged.
        """


def require_prompt_fits(target: Target, length: int) -> None:
    """Check, for `Target.prefill`, that a prompt of `length` tokens fits into the context.

    Raises:
        ContextOverflowError: it does not.
        ValueError: it is empty.
    """
    if length > target.context_length:
        raise ContextOverflowError(
            f"the prompt has {length} tokens and the context {target.context_length}:"
            " shorten the prompt or raise the context length"
        )
    if not length:
        raise ValueError("prefill needs at least one token")


def require_tree_fits(target: Target, rows: int) -> None:
    """Check, for `Target.verify`, that a tree of `rows` rows fits after the cached tokens.

    Raises:
        ContextOverflowError: it does not.
        ValueError: the target verifies fewer rows.
    """
    if rows > target.max_rows:
        raise ValueError(f"a tree of {rows} rows; this model verifies at most {target.max_rows}")
    if len(target.tokens) + rows > target.context_length:
        raise ContextOverflowError(
            f"the context of {target.context_length} tokens is full:"
            " start a new chat or raise the context length"
        )


def require_ends_fit(
    states: LayerStates, beginning: Sequence[int], ends: Sequence[Sequence[int]]
) -> None:
    """Check, for `LayerStates.read`, that each text fits.

    Raises:
        ValueError: one does not, or has no end.
    """
    room = states.max_tokens - len(beginning)
    for end in ends:
        if not 0 < len(end) <= room:
            raise ValueError(f"an end of {len(end)} tokens, where 1 to {room} fit")


class Vocabulary(Protocol):
    """Converts text to token ids and back, for one tokenizer."""

    @property
    def fingerprint(self) -> str:
        """Stable identity of the tokenizer: the key of stores of token ids."""

    @property
    def size(self) -> int: ...

    @property
    def stops(self) -> frozenset[int]:
        """Token ids that end an answer."""

    @property
    def prompt_prefix(self) -> tuple[int, ...]:
        """The tokens that begin every prompt: BOS if the model asks for it."""

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`, without BOS; `special`: whether control tokens in it are parsed."""

    def text(self, token: int) -> str:
        """How the tokenizer writes a token; not empty for control tokens."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token, maybe part of a character; empty for control tokens."""
