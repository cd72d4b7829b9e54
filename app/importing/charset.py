"""."""

from __future__ import annotations

import codecs

from charset_normalizer import from_bytes

from datastores.errors import InputError

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks; UTF-32's begins with UTF-16's, so it stands first."""


_FALLBACK = "cp1252"


_SAMPLE = 2**16


_FEW = 0.05


def decode(content: bytes) -> tuple[str, bool]:
    """The text with plain newlines, and whether it was in more than one encoding.

    UTF-8 unless a byte order mark or the bytes say otherwise. A file whose lines disagree, such as
    a log many programs wrote into, is read line by line.

    Raises:
        InputError: this is no text.
    """
    text, mixed = _decoded(content)
    if "\0" in text:
        raise InputError("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n"), mixed


def _decoded(content: bytes) -> tuple[str, bool]:
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding), False
    except UnicodeDecodeError as error:
        if encoding != "utf-8" or _is_binary(content):
            raise InputError("binary") from error
    lines = content.splitlines(keepends=True)
    utf8 = [_is_utf8(line) for line in lines]
    mixed = any(good and not line.isascii() for line, good in zip(lines, utf8, strict=True))
    foreign = b"".join(line for line, good in zip(lines, utf8, strict=True) if not good)
    guess = _guessed(foreign)
    decoded = [
        line.decode("utf-8" if good else guess, "replace")
        for line, good in zip(lines, utf8, strict=True)
    ]
    return "".join(decoded), mixed


def _guessed(content: bytes) -> str:
    best = from_bytes(content[:_SAMPLE]).best()
    return best.encoding if best else _FALLBACK


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_binary(content: bytes) -> bool:
    """Whether control characters that no text holds are more than a few of the first bytes."""
    sample = content[:_SAMPLE]
    controls = sum(sample.count(bytes([code])) for code in range(32) if code not in _IN_TEXT)
    return controls > _FEW * len(sample) or b"\0" in sample


_IN_TEXT = frozenset(b"\t\n\f\r\x1b")
