"""CREST: what followed the same words in past chats, notes, code, and in this chat (crest.txt).

The store's n-grams and those of the context are ranked as one (`engines.ngrams`), which is better
than merging two drafts afterwards: a path may begin in one and go on in the other.

Owns the reading connection. Refuses to know how the store is built, and when.
"""

from __future__ import annotations

from datastores.crest_reader import CrestReader
from engines.drafters.protocol import Context
from engines.ngrams import rank
from engines.recall import Recall
from engines.step import Step
from engines.tree import DraftTree


class Crest:
    """A drafter over one tokenizer's store."""

    name = "crest"
    learns_from = 0

    def __init__(self, reader: CrestReader, *, recalls: bool = True) -> None:
        """Read from `reader`; without `recalls`, hear the store alone."""
        self._reader = reader
        self._recall = Recall() if recalls else None

    def begin(self, context: Context) -> None:
        """Count the context's own n-grams."""
        if self._recall:
            self._recall.begin(context.tokens)
            self._recall.extend()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable paths after this context."""
        if self._recall:
            self._recall.extend()
        entries = self._reader.lookup(context.tokens)
        return rank(entries, context.tokens, limit, self._recall)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the context is counted when asked, the store learns from answers."""


class LongestMatch:
    """The paper's way of drafting: the tree of the longest n-gram found, the others unheard."""

    name = "crest"
    learns_from = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """Nothing to do: every lookup stands by itself."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.tokens, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store learns from finished answers."""
