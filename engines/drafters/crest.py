"""CREST: what followed the same words in past chats, notes and code (crest.txt).

Owns the reading connection. Refuses to know how the store is built, and when.
"""

from __future__ import annotations

from datastores.crest_reader import CrestReader
from engines.drafters.protocol import Context
from engines.ngrams import rank
from engines.step import Step
from engines.tree import DraftTree


class Crest:
    """A drafter over one tokenizer's store."""

    name = "crest"
    learns_from = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """Nothing to do: every lookup stands by itself."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable paths that the store's n-grams know after this context."""
        return rank(self._reader.lookup(context.tokens), context.root, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store learns from finished answers."""


class LongestMatch(Crest):
    """The paper's way of drafting: the tree of the longest n-gram found, the others unheard."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.root, limit)
