"""Recall: n-gram counts of the present context, to be heard beside the n-grams of a store.

What was said in this chat is the best guide to what will be said next. Owns the counts, which
follow the context as it grows and are rewound when it changes. Refuses to know trees and stores
(`engines.ngrams` blends them).
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.tokens import common_prefix

LONGEST = 4
"""n-grams of 1 to this many tokens are counted."""

Followers = dict[int, int]
"""Token that followed → how often."""


class Recall:
    """Counts of what followed every n-gram of one context.

    Attributes:
        followers: n-gram of at most `LONGEST` tokens → each token that followed it → how often.
    """

    def __init__(self) -> None:
        self._tokens: Sequence[int] = ()
        self._counted: list[int] = []
        self.followers: dict[tuple[int, ...], Followers] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        """Go over to another context, keeping what is known of the beginning they share.

        `tokens` may grow afterwards; `extend` takes note of it.
        """
        shared = common_prefix(self._counted, tokens)
        while len(self._counted) > shared:
            self._uncount()
        self._tokens = tokens

    def extend(self) -> None:
        """Count what the context has grown by."""
        counted, followers = self._counted, self.followers
        for token in self._tokens[len(counted) :]:
            recent = tuple(counted[-LONGEST:])
            for start in range(len(recent)):
                after = followers.setdefault(recent[start:], {})
                after[token] = after.get(token, 0) + 1
            counted.append(token)

    def _uncount(self) -> None:
        """Take back the last token counted."""
        token = self._counted.pop()
        recent = tuple(self._counted[-LONGEST:])
        for start in range(len(recent)):
            after = self.followers[recent[start:]]
            after[token] -= 1
            if not after[token]:
                del after[token]
            if not after:
                del self.followers[recent[start:]]
