"""The encoding of a text: UTF-8, what a byte order mark names, or a guess among older encodings.

Windows-1252 comes first. What it gives has to be unlike any Western European language, or another
encoding much likelier, before another one is assumed: a short text has few accents to count, so
that detectors alone read "città" as Czech or Macedonian. But no word mixes two scripts, and no
language has the accents of another among its own.

Owns the choice. Refuses to know files and formats.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

from datastores.errors import InputError

BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""UTF-32's begins with UTF-16's, so it comes first."""
WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
"""What a text without a mark may be in if there are zeros or controls among its bytes."""
MIN_SEPARATORS = 0.01
"""Share of blanks, line ends and stops in what is taken for UTF-16 or UTF-32."""

WESTERN = "cp1252"
LATIN_ALPHABETS = {
    "cp1252": (
        "àâæçèéêëîïôœùûüÿñ",  # French; ñ in names
        "äöüßéàè",  # German
        "áéíñóúüç",  # Spanish
        "áâãàçéêíóôõúü",  # Portuguese
        "àèéìíîòóùú",  # Italian
        "åäöéàü",  # Swedish, Finnish
        "æøåéèêòóôü",  # Danish, Norwegian
        "éëïóöüèêáíúç",  # Dutch
        "áðéíóúýþæö",  # Icelandic
        "àçéèíïóòúü",  # Catalan
        "áéíóúàèìòùâêîôû",  # Irish, Scottish Gaelic, Welsh
    ),
    "cp1250": (
        "ąćęłńóśźż",  # Polish
        "áčďéěíňóřšťúůýžäöü",  # Czech
        "áäčďéíĺľňóôŕšťúýžěřůöü",  # Slovak
        "áéíóöőúüűä",  # Hungarian
        "čćđšž",  # Croatian, Bosnian, Slovene
        "ăâîşţ",  # Romanian
    ),
    "cp1254": ("çğıöşüâîûi̇",),  # Turkish
    "cp1257": (
        "ąčęėįšųūž",  # Lithuanian
        "āčēģīķļņšūž",  # Latvian
        "äõöüšž",  # Estonian
    ),
}
"""The letters beyond ASCII of the languages that are written in an encoding, in small letters."""
SAME_LETTERS = {
    "iso8859-15": "cp1252",
    "mac-roman": "cp1252",
    "cp850": "cp1252",
    "cp437": "cp1252",
    "iso8859-2": "cp1250",
}
"""Encodings of the same languages."""
OTHER_SCRIPTS = (
    "cp1251", "koi8-r", "koi8-u", "cp866", "iso8859-5", "cp1253", "iso8859-7", "cp1255", "cp1256",
    "cp874", "cp932", "euc_jp", "gb18030", "big5", "cp949",
)  # fmt: skip
CANDIDATES = (*LATIN_ALPHABETS, *SAME_LETTERS, *OTHER_SCRIPTS)

MIN_KNOWN_LETTERS = 0.9
"""Share of the accented letters in a text that its language has; the others are in names."""
MUCH_LIKELIER, LIKELIER, MIN_RATIO = 0.05, 0.02, 1.6
"""Where Windows-1252 is possible, another encoding has to be much likelier by the detector, or
likelier and in this ratio."""
SURE_RATIO = 1.3
"""A choice that is so much likelier than one that gives another text needs no notice."""

SAMPLE_SIZE = 2**16
"""In bytes or characters: an encoding is chosen by the beginning."""
MAX_CONTROL_SHARE = 0.05
TEXT_CONTROLS = frozenset("\t\n\f\r\x1b")
"""Control characters that occur in text."""
NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Categories of characters that hardly do."""

MIXED = "mixed encodings: imported, but some characters may be wrong"
ASSUMED = "assumed to be {encoding}: imported, but some characters may be wrong"

_LETTER = r"[^\W\d_µªº¹²³¼½¾]"
_FOREIGN = re.compile(rf"(?<![A-Za-z])[A-Za-z]*+{_LETTER}+")
"""A word with letters beyond ASCII. A word without is looked at once, however long it is."""
_ASCII = re.compile(r"[A-Za-z]")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uff66-\uff9d]")
_ODD = re.compile(rf"[\x80-\x9f]|(?<={_LETTER})[¡-¬¯±-¶¸-¿×÷†‡‰‹›„‚ˆ˜\u2500-\u25ff](?={_LETTER})")
"""A control character, or a sign within a word that is within none in any language."""
_JAPANESE_MAIL = re.compile(rb"\x1b\$[@B]")
"""ISO-2022-JP is ASCII but for such escapes."""
_SEPARATOR = re.compile("[ \n、。，．]")


def decode(content: bytes) -> tuple[str, str]:
    """The text with plain newlines, and a notice if its encoding is not sure, else empty.

    UTF-8 unless a byte order mark or the bytes indicate another. A file whose lines differ, such as
    a log that many programs write to, is decoded line by line.

    Raises:
        InputError: it is not text.
    """
    text, notice = _decoded(content)
    if "\0" in text:
        raise InputError("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notice


def _decoded(content: bytes) -> tuple[str, str]:
    marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), "")
    if _JAPANESE_MAIL.search(content):
        return content.decode("iso2022_jp_ext", "replace"), ""
    if marked or b"\0" not in content:
        try:
            return content.decode(marked or "utf-8"), ""
        except UnicodeDecodeError as error:
            if marked:
                raise InputError("binary") from error
    if b"\0" in content or _has_controls(content):
        return _wide_text(content), ""
    return _by_line(content)


def _by_line(content: bytes) -> tuple[str, str]:
    """Each line as UTF-8 if it is that, else in the encoding that all others seem to be in."""
    lines = content.splitlines(keepends=True)
    utf8 = [is_utf8(line) for line in lines]
    foreign = b"".join(line for line, good in zip(lines, utf8, strict=True) if not good)
    guess, sure = guess_encoding(foreign[:SAMPLE_SIZE])
    text = "".join(
        line.decode("utf-8" if good else guess, "replace")
        for line, good in zip(lines, utf8, strict=True)
    )
    if any(good and not line.isascii() for line, good in zip(lines, utf8, strict=True)):
        return text, MIXED
    name = guess.replace("cp125", "windows-125")
    return text, "" if sure else ASSUMED.format(encoding=name)


def is_utf8(line: bytes) -> bool:
    """Whether it is valid UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_controls(content: bytes) -> bool:
    """Whether too many of the first bytes would be control characters."""
    sample = content[:SAMPLE_SIZE]
    controls = sum(sample.count(code) for code in range(32) if chr(code) not in TEXT_CONTROLS)
    return controls > MAX_CONTROL_SHARE * len(sample)


def _wide_text(content: bytes) -> str:
    """UTF-16 or UTF-32 without a mark.

    Raises:
        InputError: it is neither.
    """
    best, text = MIN_SEPARATORS, ""
    for encoding in WIDE_ENCODINGS:
        try:
            tried = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        sample = tried[:SAMPLE_SIZE]
        # With its bytes in the wrong order, a letter is another one, but a blank is no blank.
        share = len(_SEPARATOR.findall(sample)) / len(sample)
        if share > best and _is_text(sample):
            best, text = share, tried
    if not text:
        raise InputError("binary")
    return text


def _is_text(sample: str) -> bool:
    odd = sum(
        unicodedata.category(character) in NO_TEXT and character not in TEXT_CONTROLS
        for character in sample
    )
    return odd <= MAX_CONTROL_SHARE * len(sample)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An encoding, how likely the detector finds it, and the text that it gives."""

    encoding: str
    likelihood: float
    text: str

    @property
    def is_natural(self) -> bool:
        """Whether this may be a text in a language that is written in this encoding."""
        if _ODD.search(self.text):
            return False
        words = _FOREIGN.findall(self.text)
        long = sum(len(word) > 1 for word in words)
        mixed = sum(bool(_ASCII.search(word)) for word in words)
        if self.encoding in OTHER_SCRIPTS:
            return bool(_EAST_ASIAN.search(self.text)) or (long > 0 and 4 * mixed <= len(words))
        used = [letter for word in words for letter in word.lower() if not letter.isascii()]
        alphabets = LATIN_ALPHABETS[SAME_LETTERS.get(self.encoding, self.encoding)]
        known = max(sum(letter in alphabet for letter in used) for alphabet in alphabets)
        return 2 * mixed >= long and known >= MIN_KNOWN_LETTERS * len(used)


def guess_encoding(content: bytes) -> tuple[str, bool]:
    """The encoding of a text that is not UTF-8, and whether no other one is nearly as likely."""
    candidates = _candidates(content)
    natural = [one for one in candidates if one.is_natural] or [
        one for one in candidates if one.encoding == WESTERN and not _ODD.search(one.text)
    ]
    best = (natural or candidates or [_Candidate(WESTERN, 0.0, "")])[0]
    western = next((one for one in natural if one.encoding == WESTERN), best)
    if not _is_likelier(best, western):
        best = western
    rivals = (
        one.likelihood
        for one in natural
        if one.text != best.text and SAME_LETTERS.get(one.encoding) != best.encoding
    )
    return best.encoding, best.likelihood > SURE_RATIO * max(rivals, default=0.0)


def _is_likelier(other: _Candidate, western: _Candidate) -> bool:
    """Whether to prefer another encoding although the text may be Western European."""
    difference = other.likelihood - western.likelihood
    in_ratio = other.likelihood >= MIN_RATIO * western.likelihood
    return difference >= MUCH_LIKELIER or (difference >= LIKELIER and in_ratio)


def _candidates(content: bytes) -> list[_Candidate]:
    """What the text may be in, likeliest first; Windows-1252 even if the detector rules it out."""
    import chardet

    names = [name.replace("_", "-") for name in CANDIDATES]
    found = chardet.detect_all(content, ignore_threshold=True, include_encodings=names)
    likelihoods = {WESTERN: 0.0}
    for one in found:
        name = codecs.lookup(one["encoding"] or WESTERN).name
        if name in CANDIDATES:
            likelihoods[name] = max(one["confidence"], likelihoods.get(name, 0.0))
    candidates = []
    for name, likelihood in likelihoods.items():
        try:
            # The last character may be incomplete: the content is the beginning of a text.
            text = codecs.getincrementaldecoder(name)().decode(content)
            candidates.append(_Candidate(name, likelihood, text))
        except UnicodeDecodeError:
            continue
    return sorted(candidates, key=lambda one: -one.likelihood)
