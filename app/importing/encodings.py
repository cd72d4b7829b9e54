"""The encoding of a text: UTF-8, what a byte order mark names, or a guess among older encodings.

The guess prefers Windows-1252 unless its text looks like no Western European language, or another
encoding is much likelier: short texts have few accents, so detectors alone read "città" as Czech or
Macedonian. Two rules help: no word mixes scripts, and each language has its own set of accents.
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
"""UTF-32's mark begins with UTF-16's, so it comes first."""
WIDE_ENCODINGS = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
"""Candidates for a text without a mark that contains zeros or control characters."""
MIN_FAMILIAR = 0.01
"""Minimum share of `_FAMILIAR` characters in a text accepted as UTF-16 or UTF-32."""

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
"""Encoding → the lowercase non-ASCII letters of each language written in it."""
SAME_LETTERS = {
    "iso8859-15": "cp1252",
    "mac-roman": "cp1252",
    "cp850": "cp1252",
    "cp437": "cp1252",
    "iso8859-2": "cp1250",
    "mac-cyrillic": "cp1251",
}
"""Encoding → the one in `LATIN_ALPHABETS` for the same languages."""
OTHER_SCRIPTS = (
    "cp1251", "koi8-r", "koi8-u", "cp866", "iso8859-5", "mac-cyrillic", "cp1253", "iso8859-7",
    "cp1255", "cp1256", "iso8859-6", "cp874", "cp932", "euc_jp", "gb18030", "big5", "cp949",
)  # fmt: skip
CANDIDATES = (*LATIN_ALPHABETS, *SAME_LETTERS, *OTHER_SCRIPTS)

MIN_KNOWN_LETTERS = 0.9
"""Minimum share of a text's accented letters that its language has; the rest occur in names."""
MUCH_LIKELIER, LIKELIER, MIN_RATIO = 0.05, 0.02, 1.6
"""Where Windows-1252 is possible, another encoding wins if the detector's confidence is higher by
the first margin, or by the second and in this ratio."""
SURE_RATIO = 1.3
"""Ratio to the likeliest rival above which the choice needs no notice."""

SAMPLE_SIZE = 2**16
"""Bytes or characters at the start by which an encoding is chosen."""
MAX_CONTROL_SHARE = 0.05
MAX_ZEROS = 0.01
"""Most runs of zero bytes per other byte."""
TEXT_CONTROLS = frozenset("\t\n\f\r\x1b")
"""Control characters that occur in text."""
NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Unicode categories that hardly occur in text."""

MIXED = "mixed encodings: imported, but some characters may be wrong"
ASSUMED = "assumed to be {encoding}: imported, but some characters may be wrong"


def _as_western(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode(WESTERN, "replace"), error.end


AS_WESTERN = "specchat-western"
"""Name of the error handler that decodes bytes that are not UTF-8 as Windows-1252."""
codecs.register_error(AS_WESTERN, _as_western)

_LETTER = r"[^\W\d_µªº¹²³¼½¾]"
_FOREIGN = re.compile(rf"(?<![A-Za-z])[A-Za-z]*+{_LETTER}+")
"""A word with non-ASCII letters; possessive, so that a long ASCII word costs linear time."""
_ASCII = re.compile(r"[A-Za-z]")
_EAST_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uff66-\uff9d]")
_ODD = re.compile(
    rf"[\x80-\x9f]|(?<={_LETTER})[¡-¬¯±-¶¸-¿×÷†‡‰‹›ˆ˜‘“”](?={_LETTER})|(?<={_LETTER})[„‚•¼½¾]"
    rf"|[£¥€](?={_LETTER})|(?<=[^\W\dA-Z_])[\u2500-\u25ff]|[\u2500-\u25ff](?=[^\W\dA-Z_])"
    rf"|(?<=[a-z])[À-ÖØ-ÞŒŠŸŽ]|(?<=[A-Z])[À-ÖØ-ÞŒŠŸŽ](?=[a-z]{{2}})|(?<=[а-я])[Ѐ-ЏЯ](?!\w)"
    rf"|[¡-¿]{{3}}"
)
"""A control character, or a sign or capital in a place where no language has one."""
_NOT_PORTUGUESE = re.compile("[õÕ](?![eE])")
"""Estonian, or a Hungarian "ő" read in the wrong encoding."""
_JAPANESE_MAIL = re.compile(rb"\x1b\$[@B]")
"""An escape of ISO-2022-JP, which is ASCII otherwise."""
_ZEROS = re.compile(rb"\0+")
_FAMILIAR = re.compile("[ \n、。，．A-Za-zàéèöäüßñçãóęąкоеаитнρεαοήקהאيوا的了在ぁ-ん]")
"""Spaces, line ends, full stops and the most common letters of many scripts."""


def decode(content: bytes) -> tuple[str, str]:
    """The text with `\\n` line ends, and a notice if its encoding is uncertain, else empty.

    A file whose lines are in different encodings, such as a log that many programs write to, is
    decoded line by line.

    Raises:
        InputError: it is not text.
    """
    text, notice = _decoded(content)
    if "\0" in text:
        raise InputError("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n"), notice


def _decoded(content: bytes) -> tuple[str, str]:
    marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), "")
    if marked in ("utf-16", "utf-32"):
        return _marked_text(content, marked), ""
    if _JAPANESE_MAIL.search(content):
        return content.decode("iso2022_jp_ext", "replace"), ""
    if b"\0" not in content:
        content = content.removeprefix(codecs.BOM_UTF8)
        if is_utf8(content):
            return content.decode(), ""
    if b"\0" in content or _has_controls(content):
        return _wide_text(content) or _without_zeros(content), ""
    return _by_line(content)


def _by_line(content: bytes) -> tuple[str, str]:
    """Decode each line as UTF-8 if at most a few of its bytes are invalid, and all other lines in
    one guessed encoding."""
    lines = content.splitlines(keepends=True)
    utf8 = [is_utf8(line) or _is_damaged_utf8(line) for line in lines]
    foreign = b"".join(line for line, good in zip(lines, utf8, strict=True) if not good)
    guess, sure = guess_encoding(foreign[:SAMPLE_SIZE]) if foreign else (WESTERN, True)
    text = "".join(
        line.decode("utf-8", AS_WESTERN) if good else line.decode(guess, "replace")
        for line, good in zip(lines, utf8, strict=True)
    )
    if any(good and not line.isascii() for line, good in zip(lines, utf8, strict=True)):
        return text, MIXED
    name = guess.replace("cp125", "windows-125")
    return text, "" if sure else ASSUMED.format(encoding=name)


def is_utf8(line: bytes) -> bool:
    """Whether `line` is valid UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_damaged_utf8(line: bytes) -> bool:
    """Whether `line` is UTF-8 with few invalid bytes, or with some that read as Western text."""
    text = line.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    right = sum(not character.isascii() for character in text) - wrong
    if 2 * wrong < right:
        return True
    mended = _Candidate(WESTERN, 0.0, line.decode("utf-8", AS_WESTERN))
    return wrong <= right and mended.is_natural


def _marked_text(content: bytes, encoding: str) -> str:
    """UTF-16 or UTF-32 with a mark; a few invalid or cut-off characters are accepted.

    Raises:
        InputError: it is not text.
    """
    text = content.decode(encoding, "replace").removesuffix("\ufffd")
    if not text or text.count("\ufffd") > MAX_CONTROL_SHARE * len(text):
        raise InputError("binary")
    return text


def _has_controls(content: bytes) -> bool:
    sample = content[:SAMPLE_SIZE]
    controls = sum(sample.count(code) for code in range(32) if chr(code) not in TEXT_CONTROLS)
    return controls > MAX_CONTROL_SHARE * len(sample)


def _wide_text(content: bytes) -> str:
    """UTF-16 or UTF-32 without a mark; empty if it is neither."""
    best, text = MIN_FAMILIAR, ""
    for encoding in WIDE_ENCODINGS:
        try:
            tried = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        sample = tried[:SAMPLE_SIZE]
        # In the wrong byte order, letters become others that are hardly ever familiar ones.
        share = len(_FAMILIAR.findall(sample)) / len(sample)
        if share > best and _is_text(sample):
            best, text = share, tried
    return text


def _without_zeros(content: bytes) -> str:
    """UTF-8 without the zero bytes that a crash or an odd program left in a file.

    Raises:
        InputError: there are too many, or it is not text.
    """
    kept = _ZEROS.sub(b"", content)
    removed = len(_ZEROS.findall(content))
    few = kept and removed <= 1 + MAX_ZEROS * len(kept)
    if not few or _has_controls(kept) or not is_utf8(kept):
        raise InputError("binary")
    return kept.decode()


def _is_text(sample: str) -> bool:
    odd = sum(
        unicodedata.category(character) in NO_TEXT and character not in TEXT_CONTROLS
        for character in sample
    )
    return odd <= MAX_CONTROL_SHARE * len(sample)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An encoding, the detector's confidence in it, and the text decoded with it."""

    encoding: str
    likelihood: float
    text: str

    @property
    def has_foreign_word(self) -> bool:
        """Whether a word of more than one letter has non-ASCII letters."""
        return any(len(word) > 1 for word in _FOREIGN.findall(self.text))

    @property
    def is_natural(self) -> bool:
        """Whether this may be text in a language that is written in this encoding."""
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
        if alphabets is LATIN_ALPHABETS[WESTERN] and _NOT_PORTUGUESE.search(self.text):
            return False
        return 2 * mixed >= long and known >= MIN_KNOWN_LETTERS * len(used)


def guess_encoding(content: bytes) -> tuple[str, bool]:
    """The encoding of a text that is not UTF-8, and whether it is clearly the likeliest."""
    candidates = _candidates(content)
    natural = [one for one in candidates if one.is_natural] or [
        one for one in candidates if one.encoding == WESTERN and not _ODD.search(one.text)
    ]
    western = next((one for one in natural if one.encoding == WESTERN), None)
    if western is not None and not _FOREIGN.search(western.text):
        # "50 €" is likelier than "50 Ä": a reading with signs only needs a whole word against it.
        natural = [one for one in natural if one is western or one.has_foreign_word]
    best = (natural or candidates or [_Candidate(WESTERN, 0.0, "")])[0]
    western = western or best
    if not _is_likelier(best, western):
        best = western
    rivals = (
        one.likelihood
        for one in natural
        if one.text != best.text and SAME_LETTERS.get(one.encoding) != best.encoding
    )
    return best.encoding, best.likelihood > SURE_RATIO * max(rivals, default=0.0)


def _is_likelier(other: _Candidate, western: _Candidate) -> bool:
    """Whether to prefer `other` although the text may be Western European."""
    difference = other.likelihood - western.likelihood
    in_ratio = other.likelihood >= MIN_RATIO * western.likelihood
    return difference >= MUCH_LIKELIER or (difference >= LIKELIER and in_ratio)


def _candidates(content: bytes) -> list[_Candidate]:
    """The possible encodings, likeliest first; Windows-1252 even if the detector rules it out."""
    candidates = []
    for name, likelihood in ({WESTERN: 0.0} | _likelihoods(content)).items():
        try:
            # Incremental, since the sample may end within a character.
            text = codecs.getincrementaldecoder(name)().decode(content)
        except UnicodeDecodeError:
            continue
        if text.isupper():
            # The detector knows few texts in capitals; KOI8's are lowercase in other encodings.
            small = _likelihoods(text.lower().encode(name, "ignore"))
            likelihood = max(likelihood, small.get(name, 0.0))
        candidates.append(_Candidate(name, likelihood, text))
    return sorted(candidates, key=lambda one: -one.likelihood)


def _likelihoods(content: bytes) -> dict[str, float]:
    """The detector's confidence by encoding."""
    import chardet

    names = [name.replace("_", "-") for name in CANDIDATES]
    found = chardet.detect_all(content, ignore_threshold=True, include_encodings=names)
    likelihoods: dict[str, float] = {}
    for one in found:
        name = codecs.lookup(one["encoding"] or WESTERN).name
        if name in CANDIDATES:
            likelihoods[name] = max(one["confidence"], likelihoods.get(name, 0.0))
    return likelihoods
