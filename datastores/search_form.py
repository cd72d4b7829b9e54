"""The form in which texts and queries are searched: one spelling for what reads the same.

Folding unifies ligatures and their letters, full-width and plain, composed and decomposed, capital
and small letters, with and without accents or vowel points, digits of all scripts, and drops
invisible characters (soft hyphens, zero-width characters, variation selectors). Words lose their
Arabic or Hebrew article, katakana becomes hiragana, and "C++" and emoji are words.

Scripts without blanks between words, and Korean, whose endings are attached to words, are indexed
by bigrams of characters, as in Lucene's CJKAnalyzer, and by single characters; adjacent letters of
other scripts are separate words. A text is also found by the parts of its identifiers
("maxPoolSize"), by words hyphenated at the end of a line, and by umlauts written as two letters.
The case of ASCII is left to the index.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from unicodedata import combining, decimal, normalize

_INVISIBLE = re.compile(
    "[\xad\u034f\u061c\u0640\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\U000e0000-\U000e0fff]"
)
"""Soft hyphens, joiners, marks of direction, variation selectors, and Arabic's tatweel."""
_NO_LETTERS = str.maketrans("™℠", "  ")
"""Otherwise they become letters of the preceding word."""
_PLAIN_LETTERS = str.maketrans(
    {
        **dict(zip("łøđħŧıґðʼ", "lodhtiгd'", strict=True)),
        "œ": "oe",
        "æ": "ae",
        "þ": "th",
        # Arabic and Persian letters of the same sound and nearly the same shape
        **dict(zip("ىیېةہھەکٱ", "يييههههكا", strict=True)),
        # Malayalam consonants without a vowel, as one character and as two
        **dict(zip("ൺൻർൽൾൿ", ("ണ്", "ന്", "ര്", "ല്", "ള്", "ക്"), strict=True)),
    }
)
"""Letters whose stroke or missing dot is not a separate mark, and others with two spellings."""
_DIGIT = re.compile(r"\d")
_DROPPED_MARKS = frozenset([1, *range(10, 37), *range(200, 241)])
"""Combining classes of overlays, Hebrew and Arabic points and accents; not of marks that make
another letter, such as the vowels of Indian scripts and the voicing of kana."""
_NUKTA = frozenset("\u093c\u0a3c")
"""Dots of Hindi and Panjabi letters, which are often left out."""
_FOREIGN = re.compile(
    "[^\\x00-\\x7f\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25ff\u3001-\u3003\u3008-\u3011"
    "\u3400-\u4dbf\u4e00-\u9fff]+"
)
"""Characters with several spellings: not ASCII, common signs between words, or ideographs."""

_EAST_ASIAN = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_HANGUL = "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109d\uaa60-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd"
)
_RUN = re.compile(f"([{_EAST_ASIAN}]+|[{_HANGUL}]+|[{_SOUTH_EAST_ASIAN}]+)")
"""Characters of a script that is indexed by bigrams."""
WORD_CHARACTER = rf"[^\W_{_EAST_ASIAN}{_HANGUL}{_SOUTH_EAST_ASIAN}]"
"""A regular expression for a letter or digit of the other scripts."""
_MARKS = (
    "\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
    "\u17b4-\u17d1\u17d3\u17dd\u3099\u309a"
)
_UNIT = re.compile(f"(?:.|^)(?:\u17d2.|[{_MARKS}])*", re.DOTALL)
"""A character with its vowels and tones: Thai, Lao, Burmese, Khmer."""

_EMOJI = re.compile("[\u2600-\u27bf\u2b50\U0001f000-\U0001f3fa\U0001f400-\U0001faff]")
_AS_LETTER = 0xF0000
"""Added to the code of an emoji, which gives a private character that indexes treat as a letter."""
WORD = re.compile(
    r"[\w\u0900-\u0963\u0966-\u0f0a\u0f18-\u109f\u1700-\u17d3\u1a00-\u1cff\ua800-\uabff"
    r"\U000f0000-\U0010fffd]+"
)
"""A word in a search form; Python's `\\w` lacks the marks that are vowels."""

_ARTICLE = re.compile(r"(?<!\w)(?:[وفبك]?ال|لل|[ושכ]?ה)(?=[\u05d0-\u05ea\u0621-\u064a]{3})")
"""Arabic and Hebrew articles, with the conjunctions and prepositions attached to them."""
_NASAL = re.compile("[ङञणनम]्(?=[क-ह])|ँ")
"""Nasals that Hindi also writes as a dot."""
_HIRAGANA = str.maketrans({chr(code): chr(code - 0x60) for code in range(0x30A1, 0x30F7)})
_SIGNED_NAME = re.compile(r"(?<![\w+#.])([A-Za-z])(?:(\+\+)(?![+#])|#(?![\w+#]))")
"""Names of programming languages that differ only in signs: C++, C#."""

_IDENTIFIER = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(?=[A-Za-z0-9]*(?:[a-z][A-Z]|[A-Z]{2}[a-z]{2}|[A-Za-z][0-9]|[0-9][A-Za-z]))[A-Za-z0-9]{4,40}"
    r"(?![A-Za-z0-9])"
)
_IDENTIFIER_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z]{2})|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
MAX_IDENTIFIER_PARTS = 6
"""Words with more parts are encoded numbers or pictures."""
_HYPHENATED = re.compile(r"([^\W\d_]{2,})[-\u2010]\n[ \t>]*([^\W\d_]{2,})")
_UMLAUTED = re.compile(r"\w*[äöüåøÄÖÜÅØ]\w*")
_DIGRAPHS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})


def fold(text: str) -> str:
    """`text` with one spelling for what reads the same; the case of ASCII is preserved."""
    return text if text.isascii() else _FOREIGN.sub(lambda found: _folded(found[0]), text)


def _folded(text: str) -> str:
    plain = normalize("NFKD", text.translate(_NO_LETTERS)).casefold()
    visible = _INVISIBLE.sub("", normalize("NFKD", plain))
    kept = (mark for mark in visible if not _is_dropped(mark))
    letters = normalize("NFC", "".join(kept)).translate(_PLAIN_LETTERS)
    return _DIGIT.sub(lambda digit: str(decimal(digit[0])), letters)


def _is_dropped(mark: str) -> bool:
    return combining(mark) in _DROPPED_MARKS or mark in _NUKTA


def word_form(folded: str) -> str:
    """A folded text or query with its words as in an index."""
    if "+" in folded or "#" in folded:
        folded = _SIGNED_NAME.sub(_spelt_sign, folded)
    if folded.isascii():
        return folded
    folded = _NASAL.sub("ं", _ARTICLE.sub("", folded)).translate(_HIRAGANA)
    return _EMOJI.sub(lambda found: f" {chr(_AS_LETTER + ord(found[0]))} ", folded)


def _spelt_sign(match: re.Match[str]) -> str:
    return f"{match[1]}{'plusplus' if match[2] else 'sharp'} "


def index_form(text: str) -> str:
    """The indexed form of `text`: words and bigrams between blanks, followed by other spellings of
    some words."""
    if "&" in text and ";" in text:
        text = html.unescape(text)
    more = " ".join(_other_spellings(text))
    form = word_form(fold(text))
    if not form.isascii():
        form = _RUN.sub(lambda run: f" {' '.join(_indexed_grams(run[0]))} ", form)
    return f"{form}\n{more}" if more else form


def _other_spellings(text: str) -> Iterator[str]:
    """Other spellings of words in `text`."""
    for found in _IDENTIFIER.finditer(text):
        # A number in a name is not a number of the text.
        yield from (part for part in identifier_parts(found[0]) if len(part) > 1 and part.isalpha())
    if "\n" in text:
        for found in _HYPHENATED.finditer(text):
            if found[2][0].islower():
                yield fold(found[1] + found[2])
    if not text.isascii():
        for found in _UMLAUTED.finditer(text):
            yield fold(with_digraphs(found[0]))


def identifier_parts(word: str) -> list[str]:
    """The words in an identifier such as `maxPoolSize`; none for a name such as GitHub or iOS, or
    an encoded number."""
    parts = _IDENTIFIER_PART.findall(word)
    is_name = len(parts) == 2 and (word[0].isupper() or len(parts[0]) == 1)
    if is_name or not 2 <= len(parts) <= MAX_IDENTIFIER_PARTS:
        return []
    return parts


def with_digraphs(word: str) -> str:
    """A word in lower case with two letters for each umlaut, as in German and Danish."""
    return word.lower().translate(_DIGRAPHS)


def _indexed_grams(run: str) -> list[str]:
    """The bigrams of a run, which are a phrase, and its single characters."""
    units = _UNIT.findall(run)
    return [*grams(run), *units] if len(units) > 1 else units


def grams(run: str) -> list[str]:
    """The bigrams of a run, or the run itself if it is a single character."""
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
    """A text folded piece by piece, so that matches can be shown in the original.

    Attributes:
        text: the folded text in lower case.
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
        """The place in the original of the folded characters from `start` to before `end`.

        A character that was folded into several is included as a whole.
        """
        return self._original(start)[0], self._original(max(end - 1, start))[1]

    def _original(self, at: int) -> tuple[int, int]:
        """Start and end in the original of the folded character `at`, with marks after it."""
        number = self._piece(at)
        folded, start, length = self._pieces[number]
        following = self._pieces[number + 1][0]
        if following - folded == length:
            start, length = start + at - folded, 1
        if at + 1 == following:
            return start, self._pieces[self._piece(following)][1]
        return start, start + length

    def _piece(self, at: int) -> int:
        """Number of the last piece that starts at or before `at` in the folded text."""
        return bisect_right(self._pieces, at, key=lambda piece: piece[0]) - 1


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Start and text of each piece: ASCII, or a character with its marks."""
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
    """Whether normalisation may join it to the previous character."""
    return (
        combining(character) > 0
        or "\u1160" <= character <= "\u11ff"
        or character in "\uff9e\uff9f"
        or _INVISIBLE.match(character) is not None
    )
