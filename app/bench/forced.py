"""A model that writes recorded answers, in passes of its own at their full cost.

A small model then shows the time that drafting saves on texts that it could not write itself:
source code, or passages copied from the prompt. Only the logit of the recorded token is changed, so
that it is the likeliest; drafters do not see the recorded answer.
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
"""The recorded token's logit minus the largest other; the others, of which token recycling learns,
stay as they are."""


class ForcedTarget(WrappedTarget):
    """A target whose greedy continuation of a prompt is `answer`; its own if that is empty."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.answer: Sequence[int] = ()
        self._start = 0

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """See `Target.prefill`; the answer begins after `tokens`."""
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
