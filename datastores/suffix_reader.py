"""Looking up where the end of a context occurred before, on the decoding thread.

The places are those of the token cache's suffix index. A lookup reads the places of one n-gram, and
the tokens around each; a match that the text keeps following needs no lookup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from datastores.storage.integrity import damage_error, translate_errors
from datastores.storage.reader import StoreReader
from datastores.token_cache import MAX_OFFSET, OFFSET_BITS, Surroundings, read_around
from datastores.winnowing import GRAM, WINDOW, last_grams

MAX_PLACES = 8
"""Most places compared, the latest texts first. On code, 1 instead of 8 takes 1.8 % more steps, 32
instead of 8 takes 0.3 % less."""
MAX_MATCH_TOKENS = 32
"""Longest match measured at first; it grows while the text follows it."""
AHEAD_TOKENS = 128
"""Tokens read on from a place at a time."""

_PLACES_OF_GRAM = (
    "SELECT * FROM (SELECT ?, place FROM grams WHERE gram = ? ORDER BY place DESC LIMIT ?)"
)


@dataclass(slots=True)
class SuffixMatch:
    """A place where the context's last tokens occurred, and how it goes on there.

    Attributes:
        text: number of the text.
        end: offset of the last matching token.
        length: matching tokens, at least `GRAM`.
        kind: kind of text, as in CREST.
        following: the next tokens there, as far as they were read.
        ended: whether there are no others.
    """

    text: int
    end: int
    length: int
    kind: int
    following: list[int]
    ended: bool

    def advance(self, tokens: list[int]) -> bool:
        """Follow the context by `tokens`; returns whether they match, and something is left."""
        number = len(tokens)
        if number >= len(self.following) or self.following[:number] != tokens:
            return False
        self.end += number
        self.length += number
        del self.following[:number]
        return True


class SuffixReader(StoreReader):
    """The reading side of one tokenizer's suffix index."""

    def lookup(self, context: Sequence[int], new: int = WINDOW) -> list[SuffixMatch]:
        """Places of the end of `context` that something follows, those of rare n-grams first, and
        of one n-gram the latest texts.

        Args:
            new: look up only the n-grams that end in this many last tokens, at most `WINDOW`.
        """
        grams = last_grams(context, min(new, WINDOW))
        tail = list(context[-MAX_MATCH_TOKENS:])
        with self._snapshot():
            found = [self._match(place, tail) for place in self._places(grams)]
        return [match for match in found if match is not None]

    def _places(self, grams: Sequence[int]) -> list[int]:
        """Where a context with these last n-grams, the last one first, may have ended before."""
        if not grams:
            return []
        values = [value for gram in enumerate(grams) for value in (*gram, MAX_PLACES)]
        sql = " UNION ALL ".join([_PLACES_OF_GRAM] * len(grams))
        by_gram: dict[int, list[int]] = {}
        for distance, place in self._connection.execute(sql, values):
            by_gram.setdefault(distance, []).append(place + distance)
        rarest = sorted(by_gram.values(), key=len)
        return list(dict.fromkeys(place for places in rarest for place in places))[:MAX_PLACES]

    def read_on(self, match: SuffixMatch) -> None:
        """Read more of what follows; nothing if the text was deleted."""
        with self._snapshot():
            around = self._around(match.text, match.end)
        match.following, match.ended = (around.after, around.ended) if around else ([], True)

    def _match(self, place: int, tail: list[int]) -> SuffixMatch | None:
        """The match at a place, if it is one: hashes of other n-grams may be equal."""
        text, end = place >> OFFSET_BITS, place & MAX_OFFSET
        around = self._around(text, end)
        if around is None or not around.after:
            return None
        length = _common_suffix(around.before, tail)
        if length < GRAM:
            return None
        return SuffixMatch(text, end, length, around.kind, around.after, around.ended)

    def _around(self, text: int, end: int) -> Surroundings | None:
        """The tokens around a place; None if it was deleted."""
        exists = "SELECT 1 FROM texts WHERE number = ?"
        if not self._connection.execute(exists, (text,)).fetchall():
            return None
        try:
            with self._connection.blobopen("texts", "ids", text, readonly=True) as blob:

                def part(start: int, stop: int) -> bytes:
                    blob.seek(start)
                    return blob.read(stop - start)

                return read_around(part, len(blob), end, MAX_MATCH_TOKENS, AHEAD_TOKENS)
        except (IndexError, ValueError) as error:
            raise damage_error(self.path, "a text that is cut off") from error

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One state of the file for several reads."""
        with translate_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _begin(self) -> None:
        self._connection.execute("SELECT 1 FROM grams LIMIT 1").fetchall()


def _common_suffix(one: list[int], other: list[int]) -> int:
    """The length of the common end."""
    length = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        length += 1
    return length
