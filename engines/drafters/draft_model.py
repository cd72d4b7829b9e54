"""A draft model: a smaller model with the target's vocabulary (Leviathan et al. 2023).

It reads the context into a KV cache of its own and drafts as in `engines.drafters.model_drafter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datastores.errors import InputError
from datastores.tokens import common_prefix
from engines.draft_tree import DRAFT_MODEL, chain
from engines.drafters.model_drafter import CHAIN_TOKENS, ModelDrafter
from engines.target import Floats, Target, Vocabulary


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded draft model; nothing is drafted after one of its `stops` tokens."""

    model: Target
    stops: frozenset[int]


class DraftModelText:
    """The text that a draft model reads. Implements `model_drafter.DraftingModel`."""

    draft_vocabulary = None

    def __init__(self, model: Target) -> None:
        self._model = model
        self._tokens: Sequence[int] = ()
        self.context_length = self.max_depth = model.context_length

    def begin(self, tokens: Sequence[int]) -> int:
        """See `DraftingModel.begin`: 0 if the draft model does not know one of the tokens."""
        start = min(common_prefix(self._model.tokens, tokens), len(tokens) - 1)
        if max(tokens[start:]) >= self._model.vocabulary_size:
            return 0
        self._model.rewind(start)
        self._tokens = tokens
        return len(tokens) - len(self._model.tokens)

    def read(self, count: int) -> None:
        """See `DraftingModel.read`."""
        for _ in self._model.prefill(self._tokens[: len(self._model.tokens) + count]):
            pass

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """See `DraftingModel.next_rows`: one row."""
        model = self._model
        rows = min(CHAIN_TOKENS, model.max_rows)
        if (excess := len(tokens) - len(model.tokens) - rows) > 0:
            self.read(excess)
        new = tokens[len(model.tokens) :]
        output = model.verify(chain(new[0], list(new[1:]), DRAFT_MODEL))
        last: Floats = output.logits[len(new) - 1 : len(new)].copy()
        model.commit(range(len(new)))
        return last


class DraftModelDrafter(ModelDrafter):
    """Drafts with a draft model."""

    name = "draft-model"
    origin = DRAFT_MODEL
    subject = "the draft model"

    def __init__(self, draft_model: DraftModel) -> None:
        super().__init__(DraftModelText(draft_model.model), draft_model.stops)


MAX_EXTRA_TOKENS = 128
"""Unused tokens that the longer of two vocabularies may have at its end: models of one family pad
their vocabularies to different sizes."""


def require_same_vocabulary(draft_model: Vocabulary, target: Vocabulary) -> None:
    """Check that a draft model's tokens equal the target's.

    Raises:
        InputError: they differ; the message has the number of the first that does.
    """
    common = min(draft_model.size, target.size)
    different = (token for token in range(common) if draft_model.text(token) != target.text(token))
    far = abs(draft_model.size - target.size) > MAX_EXTRA_TOKENS
    first = next(different, common if far else None)
    if first is not None:
        raise InputError(f"the two divide text into different tokens (number {first} is the first)")
