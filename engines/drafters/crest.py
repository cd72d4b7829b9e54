"""CREST: what followed the same words in past chats, notes, code, and in this chat (crest.txt).

The store's n-grams and those of the context are ranked as one (`engines.drafters.ngram_ranking`),
which is better than merging two drafts afterwards: a path may begin in one and go on in the other.

Owns the reading connection. Refuses to know how the store is built, and when.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.crest.format import CrestEntry
from datastores.crest.reader import CrestReader
from datastores.errors import SpecchatError, StoreError
from engines.draft_tree import DraftTree
from engines.drafters.ngram_ranking import ContextNgrams, rank
from engines.step import Context, Step


class Crest:
    """A drafter over one tokenizer's store.

    Attributes:
        error: why the store is not heard until the next answer; None while all is well.
    """

    name = "crest"
    learns_from = 0

    def __init__(self, reader: CrestReader, *, recalls: bool = True) -> None:
        """Read from `reader`; without `recalls`, hear the store alone."""
        self.error: SpecchatError | None = None
        self._reader = reader
        self._recall = ContextNgrams() if recalls else None

    def begin(self, context: Context) -> None:
        """Count the context's own n-grams, and see what the store has learnt."""
        if self._recall:
            self._recall.begin(context.tokens)
            self._recall.extend()
        self.error = None
        try:
            self._reader.refresh()
        except StoreError as error:
            self.error = error

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable paths after this context."""
        if self._recall:
            self._recall.extend()
        return rank(self._heard(context.tokens), context.tokens, limit, self._recall)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the context is counted when asked, the store learns from answers."""

    def _heard(self, tokens: Sequence[int]) -> list[CrestEntry]:
        """What the store says: nothing once it has failed, for that must not end an answer."""
        if self.error is None:
            try:
                return self._reader.lookup(tokens)
            except StoreError as error:
                self.error = error
        return []


class LongestMatch:
    """The paper's way of drafting: the tree of the longest n-gram found, the others unheard."""

    name = "crest"
    learns_from = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """See what the store has learnt."""
        self._reader.refresh()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.tokens, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store learns from finished answers."""
