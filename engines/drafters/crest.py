"""CREST: what followed the same words in past chats, notes, code, and in this chat.

The n-grams of the store and of the context are ranked together (`engines.drafters.ngram_ranking`),
which is better than merging two drafts: a path may begin in one and continue in the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.crest.reader import CrestReader, CrestTree
from datastores.errors import SpecchatError, StoreError
from engines.draft_tree import DraftTree
from engines.drafters.ngram_ranking import ContextNgrams, rank
from engines.step import Context, Step


class CrestDrafter:
    """Drafts from one tokenizer's store.

    Attributes:
        error: why the store could not be read; None again with the next answer.
    """

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, reader: CrestReader, *, use_context: bool = True) -> None:
        """Read from `reader`; without `use_context`, draft from the store alone."""
        self.error: SpecchatError | None = None
        self._reader = reader
        self._context_ngrams = ContextNgrams() if use_context else None

    def begin(self, context: Context) -> None:
        """Count the context's own n-grams, and reopen the store if it was replaced."""
        if self._context_ngrams:
            self._context_ngrams.begin(context.tokens)
            self._context_ngrams.extend()
        self.error = None
        try:
            self._reader.refresh()
        except StoreError as error:
            self.error = error

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable paths after this context."""
        if self._context_ngrams:
            self._context_ngrams.extend()
        entries = self._lookup(context.tokens)
        return rank(entries, context.tokens, limit, self._context_ngrams)

    def observe(self, step: Step) -> None:
        """Nothing to learn: `propose` counts the context, and the store is built from texts."""

    def _lookup(self, tokens: Sequence[int]) -> list[CrestTree]:
        """The store's entries; none after an error, which must not end an answer."""
        if self.error is None:
            try:
                return self._reader.lookup(tokens)
            except StoreError as error:
                self.error = error
        return []
