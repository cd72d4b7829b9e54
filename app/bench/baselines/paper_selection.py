"""CREST as the paper has it, the baseline for specchat's own (crest.txt, sections 3.1 and 5.4).

The paper keeps the same number of n-grams for each n, the most common ones, and drafts the tree of
the longest match alone. Both are built and packed like specchat's own, so that only selection and
drafting differ. Serves benchmarks only.
"""

from __future__ import annotations

from datastores.crest.reader import CrestReader
from engines.draft_tree import DraftTree
from engines.drafters.ngram_ranking import rank
from engines.step import Context, Step


class LongestMatch:
    """The paper's way of drafting: the tree of the longest n-gram found, the others ignored."""

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, reader: CrestReader) -> None:
        self._reader = reader

    def begin(self, context: Context) -> None:
        """Reopen the store if it was replaced."""
        self._reader.refresh()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most common paths of the longest match."""
        return rank(self._reader.lookup(context.tokens)[:1], context.tokens, limit)

    def observe(self, step: Step) -> None:
        """Nothing to learn: the store is built from finished answers."""
