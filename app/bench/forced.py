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
from engines.wrapped_target import WrappedTarget

MARGIN = 1.0
"""By how much the recorded logit exceeds the others, which token recycling keeps as well."""


class ForcedTarget(WrappedTarget):
    """A target whose greedy text behind the next prompts is `answer`; its own if that is empty."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.answer: Sequence[int] = ()
        self._start = 0

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`: the answer begins behind `tokens`."""
        self._start = len(tokens)
        return super().prefill(tokens)

    @property
    def last_row(self) -> ForwardOutput:
        """See `Target.last_row`."""
        return self._forced(super().last_row, list(self.answer[:1]), [0])

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """See `Target.verify`."""
        at = len(self.tokens) + 1 - self._start
        left, path, children = self.answer[at : at + len(tree)], [0], tree.children()
        for token in left:
            if token not in children[path[-1]]:
                break
            path.append(children[path[-1]][token])
        return self._forced(super().verify(tree), left, path)

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
