"""Makes what programs write as JSON readable for ijson.

ijson rejects byte order marks, UTF-16, invalid UTF-8, lone surrogates, NaN and infinities as Python
writes them, and numbers of thousands of digits.
"""

from __future__ import annotations

import codecs
import re
from typing import BinaryIO, cast

from app.importing.encodings import AS_WESTERN, BYTE_ORDER_MARKS
from datastores.errors import InputError

MAX_DIGITS = 1000
"""A number of hundreds of thousands of digits crashes ijson."""

_CUT = re.compile(rb".*(?:[\s,:\]}\x80-\xff]|\\u(?![dD][89abAB])[0-9a-fA-F]{4})", re.DOTALL)
"""Up to the last position outside numbers, words and escapes."""

_MAX_CARRIED = 2**16
"""Bytes without such a position, as in an encoded picture, after which any is used."""

_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_ODD = re.compile(rb"NaN|Infinity|[0-9]{%d}" % MAX_DIGITS)
_ODD_OR_STRING = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?|-?Infinity|NaN|[0-9]{%d}' % MAX_DIGITS, re.DOTALL
)
_STRING_REST = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


_BY_ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
}


class CleanedJson:
    """A stream of JSON that ijson accepts.

    A byte order mark is dropped, UTF-16 and UTF-32 become UTF-8, invalid UTF-8 is read as
    Windows-1252, lone surrogates become U+FFFD, NaN and infinities null.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = in_utf8(stream)
        self._decoder = codecs.getincrementaldecoder("utf-8")(AS_WESTERN)
        self._carried = b""
        self._in_string = False

    def read(self, size: int) -> bytes:
        """About `size` more bytes; none only at the end.

        Raises:
            InputError: a number is too long.
        """
        while True:
            more = self._stream.read(size)
            content = self._carried + self._decoder.decode(more, final=not more).encode()
            match = _CUT.match(content)
            end = match.end() if match else 0
            if not end and len(content) > _MAX_CARRIED:
                end = len(content.rstrip(b"\\"))
            if not more:
                end = len(content)
            self._carried = content[end:]
            if end or not content:
                return self._clean(content[:end])

    def _clean(self, content: bytes) -> bytes:
        if b"\\ud" in content or b"\\uD" in content:
            content = _SURROGATES.sub(_surrogates, content)
        in_string = self._in_string
        plain = content.replace(b"\\\\", b"").replace(b'\\"', b"")
        self._in_string ^= plain.count(b'"') % 2 == 1
        if not _ODD.search(content):
            return content
        rest = _STRING_REST.match(content) if in_string else None
        start = rest.end() if rest else 0
        return content[:start] + _ODD_OR_STRING.sub(_odd, content[start:])


def in_utf8(stream: BinaryIO) -> BinaryIO:
    """A stream of the same text in UTF-8, without a byte order mark."""
    encoding = json_encoding(stream.read(4))
    stream.seek(len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0)
    if encoding.startswith("utf-8"):
        return stream
    return cast(BinaryIO, codecs.EncodedFile(stream, "utf-8", encoding, "replace"))


def json_encoding(start: bytes) -> str:
    """The encoding of JSON that begins with `start`: by its mark, else by the zeros around its
    first character, which is ASCII, else UTF-8 (RFC 4627, section 3)."""
    marked = (name for mark, name in BYTE_ORDER_MARKS.items() if start.startswith(mark))
    zeros = tuple(byte == 0 for byte in start[:4])
    return next(marked, _BY_ZEROS.get(zeros, "utf-8"))


def _surrogates(match: re.Match[bytes]) -> bytes:
    return match[0] if len(match[0]) != len(rb"\ud800") else rb"\ufffd"


def _odd(match: re.Match[bytes]) -> bytes:
    if match[0].startswith(b'"'):
        return match[0]
    if match[0][:1].isdigit():
        raise InputError(f"a number of more than {MAX_DIGITS} digits")
    return b"null"
