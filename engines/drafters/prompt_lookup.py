"""Prompt lookup: what followed the last time the same words occurred in this chat.

The longest suffix of the context that occurred before, the most recent among equals, proposes what
followed it (Saxena 2023, Prompt Lookup Decoding, which takes the oldest match and rescans the
context at each step). The latest position of every bigram is indexed, and for every position the
previous one with the same bigram, so a lookup visits only true candidates and a new token costs one
dictionary entry. While the text keeps copying, the match advances without a lookup.

The confidence depends on the length of the match, which grows with each drafted token, and, for the
first token, on how many of the other occurrences were followed by the same token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from datastores.tokens import common_prefix
from engines.draft_tree import PROMPT, DraftTree, root_only
from engines.step import Context, Step

MAX_CANDIDATES = 32
"""Most earlier occurrences that are compared, latest first."""
MAX_MATCH_TOKENS = 24
"""Longest match compared: beyond it, confidence does not grow."""
SURE_MATCH_TOKENS = 12
"""Match length from which on other occurrences are not compared while the text keeps copying."""

PRICE_SHARE = 0.5
"""Share of the required probability below which a row is not proposed: calibration may raise it."""

LENGTH_WEIGHT, BIAS = 1.65, -1.75
"""Log odds of a drafted token, by the log of the length of the match before it."""
VOTE_WEIGHT, FIRST_BIAS = 0.95, -0.5
"""Added for the first token, the former times `Match.votes`. All four are logistic regressions over
SmolLM2-135M's answers to edited code, to MT-Bench and to questions without a precedent. On answers
of Qwen2.5-Coder-1.5B, which they were not fitted to, drafts gained 1 to 5 % (virtual time)."""


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier occurrence of the context's last tokens.

    Attributes:
        end: position of its last token.
        length: in tokens, at most `MAX_MATCH_TOKENS`; 0 for no match.
        votes: log of (occurrences followed by the same token + ½) ÷ (by others + ½).
    """

    end: int = -1
    length: int = 0
    votes: float = 0.0

    def confidence(self, row: int) -> float:
        """Probability of drafted token `row`, from 0 on, if those before it were accepted."""
        odds = BIAS + LENGTH_WEIGHT * _LOGARITHMS[min(self.length + row, MAX_MATCH_TOKENS)]
        if row == 0:
            odds += VOTE_WEIGHT * self.votes + FIRST_BIAS
        return 1.0 / (1.0 + exp(-odds))


NO_MATCH = Match()
_LOGARITHMS = [0.0, *(log(length) for length in range(1, MAX_MATCH_TOKENS + 1))]


class PromptLookup:
    """Drafts from the context itself."""

    name = "prompt"
    top_tokens_needed = 0

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._indexed = 0
        self._latest: dict[tuple[int, int], int] = {}
        self._previous: list[int] = []
        self._match = NO_MATCH
        self._matched = 0  # length of the context at the match

    def begin(self, context: Context) -> None:
        """Index the context from where it differs from the last one."""
        shared = common_prefix(self._tokens, context.tokens)
        self._rewind(min(shared, self._indexed, len(context.tokens) - 1))
        self._tokens, self._match = context.tokens, NO_MATCH
        self._extend()

    def propose(self, context: Context, limit: int) -> DraftTree:
        """One chain: the continuation of the longest, most recent match."""
        self._extend()
        tree, tokens = root_only(context.root), context.tokens
        match = self._follow(tokens) or self._find(tokens)
        if not match.length:
            return tree
        if tokens is self._tokens:
            self._match, self._matched = match, len(tokens)
        period = len(tokens) - 1 - match.end
        following = tokens[match.end + 1 : match.end + 1 + limit]
        while len(following) < limit:
            # A match that overlaps the end is a loop, which its own draft continues.
            following.append(following[-period])
        path = 1.0
        for row, token in enumerate(following):
            confidence = match.confidence(row)
            path *= confidence
            if path < PRICE_SHARE * context.row_price:
                break
            tree.add(row, token, PROMPT, confidence, float(match.length))
        return tree

    def observe(self, step: Step) -> None:
        """Nothing to learn: `propose` indexes the new tokens."""

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

    def _follow(self, tokens: list[int]) -> Match | None:
        """The last match, advanced, if it is long and the text has kept copying it."""
        match, grown = self._match, len(tokens) - self._matched
        end, length = match.end + grown, match.length + grown
        if tokens is not self._tokens or not match.length or length < SURE_MATCH_TOKENS:
            return None
        if tokens[match.end + 1 : end + 1] != tokens[self._matched :]:
            return None
        return Match(end, min(length, MAX_MATCH_TOKENS), match.votes)

    def _find(self, tokens: list[int]) -> Match:
        """The best match of the suffix of `tokens`: the context, maybe with drafted tokens."""
        last = len(tokens) - 1
        if last < 1:
            return NO_MATCH
        end = self._latest.get((tokens[last - 1], tokens[last]), -1)
        best_end, best_length = -1, 0
        followers: list[int] = []
        while end >= 1 and len(followers) < MAX_CANDIDATES:
            followers.append(tokens[end + 1])
            # Only a longer match counts; a token that differs at this offset rules it out.
            if end >= best_length and tokens[end - best_length] == tokens[last - best_length]:
                length = _match_length(tokens, end, last)
                if length > best_length:
                    best_end, best_length = end, length
            end = self._previous[end]
        if not best_length:
            return NO_MATCH
        agreeing = followers.count(tokens[best_end + 1])
        votes = log((agreeing + 0.5) / (len(followers) - agreeing + 0.5))
        return Match(best_end, best_length, votes)


def _match_length(tokens: list[int], end: int, last: int) -> int:
    length = 2
    while (
        length < MAX_MATCH_TOKENS
        and length <= end
        and tokens[end - length] == tokens[last - length]
    ):
        length += 1
    return length
