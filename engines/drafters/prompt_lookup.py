"""Prompt lookup: what followed the last time the same words occurred in this chat.

The longest suffix of the context that occurred before, most recent among equals, proposes what
followed it (Saxena 2023, Prompt Lookup Decoding, which takes the oldest match and rescans the
context at each step). The latest position of every bigram is indexed, and for every position the
previous one with the same bigram, so a lookup visits only true candidates and a new token costs one
dictionary entry.
"""

from __future__ import annotations

from datastores.tokens import common_prefix
from engines.draft_tree import PROMPT, DraftTree, root_only
from engines.step import Context, Step

MAX_CANDIDATES = 32
"""Earlier occurrences that are compared, latest first."""
MAX_MATCH_TOKENS = 24
"""Longest match compared: beyond it, confidence does not grow."""


class PromptLookup:
    """A drafter whose store is the context itself."""

    name = "prompt"
    top_tokens_needed = 0

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._indexed = 0
        self._latest: dict[tuple[int, int], int] = {}
        self._previous: list[int] = []

    def begin(self, context: Context) -> None:
        """Index the context, from where it departs from the last one."""
        shared = common_prefix(self._tokens, context.tokens)
        self._rewind(min(shared, self._indexed, len(context.tokens) - 1))
        self._tokens = context.tokens
        self._extend()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One chain: the continuation of the longest, most recent match."""
        self._extend()
        tree, tokens = root_only(context.root), context.tokens
        end, length = self._match(tokens)
        if not length:
            return tree
        confidence = 1.0 - 0.6 / length
        period = len(tokens) - 1 - end
        following = tokens[end + 1 : end + 1 + limit]
        while len(following) < limit:
            # A match that overlaps the end is a loop: it continues with its own draft.
            following.append(following[-period])
        for row, token in enumerate(following):
            tree.add(row, token, PROMPT, confidence, float(length))
        return tree

    def observe(self, step: Step) -> None:
        """Nothing to learn: the context holds the new tokens and is indexed in `propose`."""

    def _extend(self) -> None:
        """Index every bigram but the last one, whose continuation is looked up."""
        tokens, latest, previous = self._tokens, self._latest, self._previous
        for end in range(self._indexed, len(tokens) - 1):
            bigram = (tokens[end - 1] if end else -1, tokens[end])
            previous.append(latest.get(bigram, -1))
            latest[bigram] = end
        self._indexed = len(previous)

    def _rewind(self, length: int) -> None:
        tokens, latest = self._tokens, self._latest
        for end in range(self._indexed - 1, length - 1, -1):
            bigram = (tokens[end - 1] if end else -1, tokens[end])
            previous = self._previous.pop()
            if previous < 0:
                del latest[bigram]
            else:
                latest[bigram] = previous
        self._indexed = len(self._previous)

    def _match(self, tokens: list[int]) -> tuple[int, int]:
        """Last position and length of the best match of the suffix of `tokens`, the context with
        or without drafted tokens behind it; length 0: none."""
        last = len(tokens) - 1
        if last < 1:
            return -1, 0
        end = self._latest.get((tokens[last - 1], tokens[last]), -1)
        best_end, best_length = -1, 0
        for _ in range(MAX_CANDIDATES):
            if end < 1:
                break
            length = _match_length(tokens, end, last)
            if length > best_length:
                best_end, best_length = end, length
                if length == MAX_MATCH_TOKENS:
                    break
            end = self._previous[end]
        return best_end, best_length


def _match_length(tokens: list[int], end: int, last: int) -> int:
    length = 2
    while (
        length < MAX_MATCH_TOKENS
        and length <= end
        and tokens[end - length] == tokens[last - length]
    ):
        length += 1
    return length
