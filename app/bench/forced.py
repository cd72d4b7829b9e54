"""A model that writes recorded answers: its own passes at their full cost, another's words.

So a small model shows in time what drafting gains on texts that it could not write itself: source
code, passages that are copied from the prompt. Its logits are its own but for the recorded token,
which is made the likeliest; drafters see nothing of the record.

Owns that change of the logits. Refuses to know what the answers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.engine.engine import Engine
from engines.draft_tree import DraftTree
from engines.sampler import Sampling
from engines.target import ForwardOutput, Target

MARGIN = 1.0
"""By how much the recorded logit exceeds the others, which token recycling keeps as well."""


class ForcedTarget:
    """A target whose greedy text behind the next prompts is `answer`; its own if that is empty."""

    def __init__(self, target: Target) -> None:
        self.answer: Sequence[int] = ()
        self._target = target
        self._start = 0
        self.fingerprint = target.fingerprint
        self.vocabulary_size = target.vocabulary_size
        self.width = target.width
        self.context_length = target.context_length
        self.max_rows = target.max_rows
        self.chains_only = target.chains_only
        self.rollback_rows = target.rollback_rows

    @property
    def tokens(self) -> Sequence[int]:
        """See `Target.tokens`."""
        return self._target.tokens

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`: the answer begins behind `tokens`."""
        self._start = len(tokens)
        return self._target.prefill(tokens)

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`."""
        return self._forced(self._target.last_row, list(self.answer[:1]), [0])

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`."""
        at = len(self.tokens) + 1 - self._start
        left, path, children = self.answer[at : at + len(tree)], [0], tree.children()
        for token in left:
            if token not in children[path[-1]]:
                break
            path.append(children[path[-1]][token])
        return self._forced(self._target.verify(tree), left, path)

    def commit(self, path: Sequence[int]) -> None:
        """See `Target.commit`."""
        self._target.commit(path)

    def rewind(self, length: int) -> None:
        """See `Target.rewind`."""
        self._target.rewind(length)

    def _forced(
        self, output: ForwardOutput, tokens: Sequence[int], path: Sequence[int]
    ) -> ForwardOutput:
        """`output` with `tokens` as the likeliest ones at the rows on `path`."""
        if not tokens:
            return output
        logits = output.logits.copy()
        for row, token in zip(path, tokens, strict=False):
            logits[row, token] = logits[row].max() + MARGIN
        return ForwardOutput(logits, output.hidden)


def forced(engine: Engine) -> Engine:
    """The same model, which writes recorded answers greedily."""
    defaults = replace(engine.defaults, sampling=Sampling(temperature=0.0))
    return replace(engine, target=ForcedTarget(engine.target), defaults=defaults)
