"""The form in which texts and queries are searched: one spelling for what reads the same.

Folding makes one of a ligature and its letters, full-width and plain ones, composed and decomposed
ones, capital and small ones, with and without accents or vowel points, and drops what is invisible
(soft hyphens, zero-width characters, variation selectors). Scripts without blanks between words,
and Korean, whose endings stick to words, are indexed by bigrams of characters, as in Lucene's
CJKAnalyzer, and by single characters; letters of other scripts beside them are words of their own.

ASCII is its own search form: its case is left to the index. Owns these rules. Refuses to know
indexes, and which words of a question matter.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from unicodedata import combining, normalize

_INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u0640\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\U000e0000-\U000e0fff]"
)
"""Soft hyphens, joiners, marks of direction, variation selectors, and Arabic's tatweel."""
_NO_LETTERS = str.maketrans("™℠", "  ")
"""Else they become letters of the word that they follow."""
_PLAIN_LETTERS = str.maketrans("łøđħŧı", "lodhti")
"""Letters whose stroke, or missing dot, is no mark by itself."""
_DROPPED_MARKS = frozenset([*range(10, 37), *range(200, 241)])
"""Combining classes of Hebrew and Arabic points and of accents; not of marks that make another
letter, such as the vowels of Indian scripts and the voicing of kana."""
_FOREIGN = re.compile(
    "[^\\x00-\\x7f\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25ff\u3001-\u3003\u3008-\u3011"
    "\u3400-\u4dbf\u4e00-\u9fff]+"
)
"""What may have another spelling: neither ASCII, common signs between words, nor ideographs."""

_EAST_ASIAN = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109d\uaa60-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd"
)
_RUN = re.compile(f"([{_EAST_ASIAN}]+|[{_HANGUL}]+|[{_SOUTH_EAST_ASIAN}]+)")
"""Characters of one script that is indexed by bigrams."""
WORD_CHARACTER = rf"[^\W_{_EAST_ASIAN}{_HANGUL}{_SOUTH_EAST_ASIAN}]"
"""A regular expression for a letter or digit of the other scripts."""
_MARKS = (
    "\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
    "\u17b4-\u17d1\u17d3\u17dd\u3099\u309a"
)
_UNIT = re.compile(f"(?:.|^)(?:\u17d2.|[{_MARKS}])*", re.DOTALL)
"""A character with the vowels and tones around it: Thai, Lao, Burmese, Khmer."""

WORD = re.compile(
    r"[\w\u0900-\u0963\u0966-\u0f0a\u0f18-\u109f\u1700-\u17d3\u1a00-\u1cff\ua800-\uabff]+"
)
"""A word in a search form; Python's `\\w` lacks the marks that are vowels."""


def fold(text: str) -> str:
    """`text` with one spelling for what reads the same; the case of ASCII stays."""
    return text if text.isascii() else _FOREIGN.sub(lambda found: _folded(found[0]), text)


def _folded(text: str) -> str:
    plain = normalize("NFKD", _INVISIBLE.sub("", text.translate(_NO_LETTERS))).casefold()
    kept = (mark for mark in normalize("NFKD", plain) if combining(mark) not in _DROPPED_MARKS)
    return normalize("NFC", "".join(kept)).translate(_PLAIN_LETTERS)


def index_form(text: str) -> str:
    """What an index of words is given of `text`: words between blanks, bigrams among them."""
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {' '.join(_indexed_grams(run[0]))} ", fold(text))


def _indexed_grams(run: str) -> list[str]:
    """The bigrams of a run, which are a phrase, and its single characters."""
    units = _UNIT.findall(run)
    return [*grams(run), *units] if len(units) > 1 else units


def grams(run: str) -> list[str]:
    """The bigrams of a run; itself, if it is a single character."""
    units = [unit for unit in _UNIT.findall(run) if unit]
    return [first + second for first, second in pairwise(units)] or units


def split_runs(folded: str) -> list[tuple[str, bool]]:
    """The pieces of a folded text, each with whether it is indexed by bigrams."""
    pieces = _RUN.split(folded)
    return [(piece, bool(number % 2)) for number, piece in enumerate(pieces) if piece]


def is_gram(word: str) -> bool:
    """Whether a word of a search form is of a script that is indexed by bigrams."""
    return _RUN.match(word) is not None


class FoldedText:
    """A text folded piece by piece, so that what is found in it can be shown in the original.

    Attributes:
        text: folded, in small letters.
    """

    def __init__(self, original: str) -> None:
        self._pieces: list[tuple[int, int, int]] = []
        folded: list[str] = []
        length = 0
        for start, piece in _pieces(original):
            form = fold(piece).lower()
            self._pieces.append((length, start, len(piece)))
            folded.append(form)
            length += len(form)
        self._pieces.append((length, len(original), 0))
        self.text = "".join(folded)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where the characters from `start` to before `end` of the folded text are in the original.

        A character that was folded into several is there as a whole.
        """
        return self._original(start)[0], self._original(max(end - 1, start))[1]

    def _original(self, at: int) -> tuple[int, int]:
        """Start and end of what was folded into the character `at`, marks behind it included."""
        number = self._piece(at)
        folded, start, length = self._pieces[number]
        following = self._pieces[number + 1][0]
        if following - folded == length:
            start, length = start + at - folded, 1
        if at + 1 == following:
            return start, self._pieces[self._piece(following)][1]
        return start, start + length

    def _piece(self, at: int) -> int:
        """The number of the last piece that begins at or before `at` in the folded text."""
        return bisect_right(self._pieces, at, key=lambda piece: piece[0]) - 1


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Where each piece begins, and the piece: ASCII, or a character with its marks."""
    done = 0
    for found in _FOREIGN.finditer(text):
        if found.start() > done:
            yield done, text[done : found.start()]
        done = found.end()
        start = found.start()
        for at in range(start + 1, done):
            if not _joins(text[at]):
                yield start, text[start:at]
                start = at
        yield start, text[start:done]
    if done < len(text):
        yield done, text[done:]


def _joins(character: str) -> bool:
    """Whether normalisation may join it to the character before."""
    return (
        combining(character) > 0
        or "\u1160" <= character <= "\u11ff"
        or character in "\uff9e\uff9f"
        or _INVISIBLE.match(character) is not None
    )
