"""A stretch of text around what was found in it.

Offsets instead of marks: whoever shows an excerpt sanitises its pieces and styles them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
"""From the first character to after the last one."""

LENGTH = 120
"""Characters of an excerpt, without its ellipses."""
LEAD = 30
"""Characters before the first find."""
CONSIDERED = 1000
"""Finds among which the stretch to show is chosen."""

_ONE_LINE = str.maketrans(dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029", " "))


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of text and the spans in it that were found, in order, none overlapping."""

    text: str
    spans: tuple[Span, ...]

    def pieces(self) -> Iterator[tuple[str, bool]]:
        """The text in pieces, each with whether it was found."""
        done = 0
        for start, end in self.spans:
            yield self.text[done:start], False
            yield self.text[start:end], True
            done = end
        yield self.text[done:], False


def excerpt(text: str, spans: Sequence[Span]) -> Excerpt:
    """The stretch of `text` that shows the most different ones of `spans`, which are in order."""
    start = _best_start(text, spans[:CONSIDERED])
    first = max(0, min(start - LEAD, len(text) - LENGTH))
    if first:
        # Begin with a word where one begins soon.
        space = text.find(" ", first, start)
        first = space + 1 if space >= 0 else first
    last = min(len(text), first + LENGTH)
    lead, tail = "…" if first else "", "…" if last < len(text) else ""
    shift = len(lead) - first
    kept = tuple(
        (begin + shift, min(end, last) + shift) for begin, end in spans if first <= begin < last
    )
    return Excerpt(lead + text[first:last].translate(_ONE_LINE) + tail, kept)


def _best_start(text: str, spans: Sequence[Span]) -> int:
    """Where the first span begins of those that have the most others beside them.

    Different words count before all: "the" is everywhere, what else was asked for is not.
    """
    ends = [end for _, end in spans]
    best, most = 0, (0, 0)
    for number, (start, _) in enumerate(spans):
        beside = spans[number : max(number + 1, bisect_right(ends, start + LENGTH - LEAD))]
        value = len({text[begin:end].lower() for begin, end in beside}), len(beside)
        if value > most:
            best, most = start, value
    return best
