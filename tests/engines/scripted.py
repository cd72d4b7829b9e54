"""A tiny scripted target: a hashed n-gram language model behind the real protocol, in microseconds.

Its next-token distribution depends on the last `ORDER` tokens only, so answers repeat themselves
enough for drafts to be accepted, and it checks on every call that the loop follows the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from engines.draft_tree import DraftTree
from engines.target import Floats, ForwardOutput

VOCABULARY = 64
WIDTH = 8
ORDER = 1


@lru_cache(maxsize=100_000)
def logits_after(suffix: tuple[int, ...], sharpness: float) -> tuple[float, ...]:
    """Deterministic logits for a suffix of the context."""
    random = np.random.default_rng([*suffix, 7])
    return tuple((random.standard_normal(VOCABULARY) * sharpness).astype(np.float32).tolist())


class ScriptedTarget:
    """Implements `engines.target.Target` over the n-gram model."""

    fingerprint = "scripted"
    vocabulary_size = VOCABULARY
    width = WIDTH
    max_rows = 256
    rollback_rows = 256

    def __init__(
        self,
        *,
        context_length: int = 512,
        sharpness: float = 8.0,
        chains_only: bool = False,
    ) -> None:
        self.context_length = context_length
        self.chains_only = chains_only
        self.sharpness = sharpness
        self.tokens: list[int] = []
        self.passes = 0
        self._last_row: ForwardOutput | None = None
        self._tree: DraftTree | None = None

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Take the tokens in two chunks."""
        assert len(tokens) <= self.context_length
        half = len(tokens) // 2
        self.tokens = list(tokens[:half])
        yield half
        self.tokens = list(tokens)
        self._last_row = self._rows([tuple(self.tokens[-ORDER:])])
        yield len(tokens)

    @property
    def last_row(self) -> ForwardOutput:
        """The last prefilled row."""
        assert self._last_row is not None
        return self._last_row

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """Logits for each row, each after its own path."""
        assert self._tree is None, "verify before commit"
        assert len(self.tokens) + len(tree) <= self.context_length
        assert len(tree) <= self.max_rows
        assert tree.is_chain() or not self.chains_only
        for row, parent in enumerate(tree.parents):
            assert parent < row, "a parent must come before its child"
        assert all(len(set(kids)) == len(kids) for kids in tree.children())
        self._tree = tree
        self._last_row = None
        self.passes += 1
        paths: list[tuple[int, ...]] = []
        for row, token in enumerate(tree.tokens):
            before = paths[tree.parents[row]] if row else tuple(self.tokens[-ORDER:])
            paths.append((*before, token)[-ORDER:])
        return self._rows(paths)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the path's tokens."""
        assert self._tree is not None
        assert path[0] == 0
        for row, parent in zip(path[1:], path, strict=False):
            assert self._tree.parents[row] == parent
        self.tokens.extend(self._tree.tokens[row] for row in path)
        self._tree = None

    def rewind(self, length: int) -> None:
        """Cut the tokens."""
        del self.tokens[length:]

    def _rows(self, suffixes: list[tuple[int, ...]]) -> ForwardOutput:
        logits: Floats = np.array(
            [logits_after(suffix, self.sharpness) for suffix in suffixes], np.float32
        )
        return ForwardOutput(logits, logits[:, :WIDTH].copy())
