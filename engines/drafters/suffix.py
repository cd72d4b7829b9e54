"""Suffix drafting: what followed the last time the same words were written, in any text or chat.

This is prompt lookup in the whole history and all imports. CREST drafts what is common, up to ten
tokens; this reads on from the places where the context's last tokens occurred before, for as long
as the text follows one of them (SuffixDecoding, arXiv 2411.04975; SAM-Decoding, arXiv 2411.10666).

Several places make a tree, in which a token has the share of the places that agree on it, weighted
by the length of their match. As in prompt lookup, the confidence depends on that length, which
grows with each drafted token. It is also the evidence from which calibration learns what a match of
some length is worth (Hybrid Verified Decoding, arXiv 2606.01019).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import exp, log

from datastores.errors import SpecchatError, StoreError
from datastores.suffix_reader import SuffixMatch, SuffixReader
from engines.draft_tree import DraftTree, root_only
from engines.step import Context, Step

SURE_MATCH_TOKENS = 16
"""Match length from which on no other places are looked up while the text follows it."""
SHORTEST_SHARE = 0.5
"""Share of the longest match's length below which others do not count."""
LONGEST = 64
"""Most tokens drafted from a place."""
MIN_PROBABILITY = 0.01
"""Path probability below which a row is not proposed."""
PRICE_SHARE = 0.5
"""Share of the required probability below which a row is not proposed: calibration may raise it."""
LENGTH_WEIGHT, BIAS, MAX_LENGTH = 1.65, -1.75, 24
"""Log odds of a token that all places have, by the log of the length of the match before it, at
most `MAX_LENGTH`: those of prompt lookup."""


class SuffixDrafter:
    """Drafts from the texts of one tokenizer's suffix index.

    Attributes:
        error: why the index could not be read; None again with the next answer.
    """

    name = "suffix"
    top_tokens_needed = 0

    def __init__(self, reader: SuffixReader) -> None:
        self.error: SpecchatError | None = None
        self._reader = reader
        self._tokens: list[int] = []
        self._matched = self._looked_up = 0  # length of the context at the matches and the lookup
        self._matches: list[SuffixMatch] = []

    def begin(self, context: Context) -> None:
        """Forget the last answer's places, and reopen the index if it was replaced."""
        self._tokens, self._matches, self.error = context.tokens, [], None
        self._matched = self._looked_up = 0
        try:
            self._reader.refresh()
        except StoreError as error:
            self.error = error

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A tree of how the text went on at the places that match it longest."""
        if self.error is not None:
            return root_only(context.root)
        try:
            matches = self._find(context.tokens, limit)
        except StoreError as error:
            self.error = error
            return root_only(context.root)
        floor = max(MIN_PROBABILITY, PRICE_SHARE * context.row_price)
        return _grow(context.root, matches, limit, floor)

    def observe(self, step: Step) -> None:
        """Nothing to learn: `propose` follows the context, and the index is built from texts."""

    def _find(self, tokens: list[int], limit: int) -> list[SuffixMatch]:
        """The matches of the end of `tokens`: the context, maybe with drafted tokens."""
        if tokens is not self._tokens:
            return _longest(self._reader.lookup(tokens))
        new = tokens[self._matched :]
        matches = [match for match in self._matches if match.advance(new)] if new else self._matches
        if max((match.length for match in matches), default=0) < SURE_MATCH_TOKENS:
            known = {(match.text, match.end) for match in matches}
            found = self._reader.lookup(tokens, len(tokens) - self._looked_up)
            self._looked_up = len(tokens)
            matches += [match for match in found if (match.text, match.end) not in known]
        self._matches, self._matched = _longest(matches), len(tokens)
        for match in self._matches:
            if len(match.following) < min(limit, LONGEST) and not match.ended:
                self._reader.read_on(match)
        return self._matches


def _longest(matches: Sequence[SuffixMatch]) -> list[SuffixMatch]:
    """The matches that are not much shorter than the longest one."""
    least = SHORTEST_SHARE * max((match.length for match in matches), default=0)
    return [match for match in matches if match.length >= least]


Entry = tuple[float, int, int, float, int, list[SuffixMatch]]
"""A candidate row: negative path probability, parent's row, token, probability, depth, and the
matches that have it. Parent and token break ties."""


def _grow(root: int, matches: list[SuffixMatch], limit: int, floor: float) -> DraftTree:
    """A tree of at most `limit` rows besides the root, the most probable paths first."""
    tree = root_only(root)
    heap: list[Entry] = []
    _branch(heap, matches, 0, 1.0, 0, floor)
    while heap and len(tree) <= limit:
        negative, parent, token, probability, depth, members = heappop(heap)
        length = max(match.length for match in members) + depth - 1
        origin = 1 << members[0].kind
        row = tree.add(parent, token, origin, probability, float(length))
        _branch(heap, members, row, -negative, depth, floor)
    return tree


def _branch(
    heap: list[Entry],
    matches: list[SuffixMatch],
    parent: int,
    path: float,
    depth: int,
    floor: float,
) -> None:
    """Push what follows `depth` tokens after the context in `matches`."""
    if depth == LONGEST:
        return
    groups: dict[int, list[SuffixMatch]] = {}
    for match in matches:
        if depth < len(match.following):
            groups.setdefault(match.following[depth], []).append(match)
    total = _weight(matches)
    for token, members in groups.items():
        length = max(match.length for match in members) + depth
        probability = _CONFIDENCES[min(length, MAX_LENGTH)] * _weight(members) / total
        if path * probability > floor:
            heappush(heap, (-path * probability, parent, token, probability, depth + 1, members))


def _weight(matches: Iterable[SuffixMatch]) -> int:
    """The sum of the lengths; any power of them up to the sixth drafts as well."""
    return sum([match.length for match in matches])


_CONFIDENCES = [
    1.0 / (1.0 + exp(-BIAS - LENGTH_WEIGHT * log(max(length, 1))))
    for length in range(MAX_LENGTH + 1)
]
"""Probability of a token by the length of the match before it, if no place has another one."""
