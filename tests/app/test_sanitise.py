"""The sanitiser removes every forbidden character, however text is split."""

from __future__ import annotations

import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.sanitise import StreamCleaner, clean, one_line

_NUMBER_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
"""Format characters that are visible in Arabic and Syriac."""

_HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cc", "Cf", "Cs", "Cn", "Zl", "Zp"]),
        st.sampled_from("\x1b\x9b\x9d\x07\r\n\t[]0123;m\u200d\u202e\ufeff\U000e0041\ud83d\ude00"),
    )
)


def _forbidden(character: str) -> bool:
    """Derived from Unicode's categories, independently of the sanitiser's list."""
    code = ord(character)
    if character in "\n\t" or character in _NUMBER_SIGNS:
        return False
    nameless = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    ignorable = 0xE0000 <= code <= 0xE0FFF or 0xFE0E <= code <= 0xFE0F or 0x1F3FB <= code <= 0x1F3FF
    category = unicodedata.category(character)
    signs = "KAITHI", "EGYPTIAN HIEROGLYPH"
    if category == "Cf" and unicodedata.name(character, "").startswith(signs):
        return False
    return nameless or ignorable or category in ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(_HOSTILE)
def test_no_forbidden_character_survives(text: str) -> None:
    assert not [hex(ord(character)) for character in clean(text) if _forbidden(character)]


def test_no_forbidden_character_of_unicode_survives() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert not [hex(ord(character)) for character in clean(every) if _forbidden(character)]


@given(_HOSTILE)
def test_clean_text_is_unchanged(text: str) -> None:
    assert clean(clean(text)) == clean(text)
    assert one_line(one_line(text)) == one_line(text)


@given(st.lists(_HOSTILE | st.sampled_from(["\r", "\n", "a\r", "\nb", ""])))
def test_fragments_are_cleaned_like_the_whole(fragments: list[str]) -> None:
    cleaner = StreamCleaner()
    assert "".join(map(cleaner.clean, fragments)) == clean("".join(fragments))


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_honest_text_is_not_touched(text: str) -> None:
    honest = "".join(character for character in text if not _forbidden(character))
    assert clean(honest) == honest


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\u241b[31mred\u241b[0m"),
        ("\x1b]52;c;aGk=\x07", "\u241b]52;c;aGk=\u2407"),
        ("\x9b2J\x9d0;title\x9c", "\ufffd2J\ufffd0;title\ufffd"),
        ("over\x08\x08write\x7f", "over\u2408\u2408write\u2421"),
        ("line\r\nnext\rback\r\r\n", "line\nnext\nback\n\n"),
        (
            "warning \u26a0\ufe0f 1\ufe0f\u20e3 \U0001f44d\U0001f3fd",
            "warning \u26a0 1\u20e3 \U0001f44d",
        ),
        ("evil\u202egpj.exe", "evilgpj.exe"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("tags\U000e0041\U000e007f", "tags"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
        ("[/INST] [bold]x[/] \\[", "[/INST] [bold]x[/] \\["),
        ("a\u2028b\u2029c", "a\nb\nc"),
        ("tab\tand 日本 e\u0301 😀", "tab\tand 日本 e\u0301 😀"),
    ],
)
def test_examples(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


@given(_HOSTILE, st.integers(1, 30))
def test_a_line_is_one_line_of_limited_length(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert not set(line) & set("\n\t")


def test_a_long_line_is_cut_visibly() -> None:
    assert one_line(" a title\nof  two lines ", 12) == "a title of …"
