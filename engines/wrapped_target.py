"""A target that forwards to another one, as a base for targets that change its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engines.draft_tree import DraftTree
from engines.target import ForwardOutput, Target


class WrappedTarget:
    """Forwards every call to `target`. Implements `engines.target.Target`."""

    def __init__(self, target: Target) -> None:
        self.fingerprint = target.fingerprint
        self.vocabulary_size = target.vocabulary_size
        self.width = target.width
        self.context_length = target.context_length
        self.max_rows = target.max_rows
        self.chains_only = target.chains_only
        self.rollback_rows = target.rollback_rows
        self._target = target

    @property
    def tokens(self) -> Sequence[int]:
        """See `Target.tokens`."""
        return self._target.tokens

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`."""
        return self._target.prefill(tokens)

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`."""
        return self._target.last_row

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`."""
        return self._target.verify(tree)

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`."""
        self._target.commit(path)

    def rewind(self, length: int) -> None:
        """See `Target.rewind`."""
        self._target.rewind(length)
