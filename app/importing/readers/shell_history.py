"""Shell histories as a sequence of commands.

With timestamps, bash writes `#1700000000` on the line before a command, tcsh `#+1700000000`. zsh
writes `: 1700000000:0;` before it, and a backslash at the end of each line but the last. fish
writes something like YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.importing.encodings import decode, is_utf8
from app.importing.import_file import MAX_TEXT_BYTES, FormatReader, ImportFile, Outcome
from datastores.errors import InputError
from datastores.library.documents import SHELL, Document, Part

_BASH_TIME = re.compile(rb"^#\+?\d{9,}\r?(?:\n|\Z)", re.MULTILINE)
_ZSH_ENTRY = re.compile(r"^: \d+:\d+;", re.MULTILINE)
_FISH_ENTRY = re.compile(r"^- cmd: (.*)", re.MULTILINE)
_FISH_ESCAPE = re.compile(r"\\(n|\\)")

_META = 0x83
"""zsh escapes bytes that it uses itself as this byte and the original with bit 5 flipped."""
_METAFIED = re.compile(rb"(?:[^\x83-\xa2]|\x83[\x20\x80-\x82\xa3-\xbf])*")
"""A line as zsh writes it; escaping a byte of a UTF-8 character makes it invalid."""


def _is_bash(file: ImportFile) -> bool:
    named = file.filename in {".bash_history", "bash_history", ".sh_history", ".history"}
    return named or bool(_BASH_TIME.match(file.head))


def _is_zsh(file: ImportFile) -> bool:
    named = file.filename in {".zsh_history", "zsh_history", ".zhistory", ".histfile"}
    return named or re.match(rb": \d{9,}:\d+;", file.head) is not None


def _is_fish(file: ImportFile) -> bool:
    named = file.filename == "fish_history"
    return named or re.match(rb"- cmd: .*\n  when: \d", file.head) is not None


def _read_bash(file: ImportFile) -> Iterator[Outcome]:
    content = _BASH_TIME.sub(b"", file.read(MAX_TEXT_BYTES))
    yield _document(file, decode(content)[0])


def _read_zsh(file: ImportFile) -> Iterator[Outcome]:
    lines = file.read(MAX_TEXT_BYTES).splitlines(keepends=True)
    text, _ = decode(b"".join(map(_typed, lines)))
    yield _document(file, _ZSH_ENTRY.sub("", text.replace("\\\n", "\n")))


def _typed(line: bytes) -> bytes:
    """A line without zsh's escapes; other programs write plain lines into histories, too."""
    return line if is_utf8(line) or not _METAFIED.fullmatch(line) else unmetafy(line)


def _read_fish(file: ImportFile) -> Iterator[Outcome]:
    text, _ = decode(file.read(MAX_TEXT_BYTES))
    commands = (_FISH_ESCAPE.sub(_fish_character, command) for command in _FISH_ENTRY.findall(text))
    yield _document(file, "\n".join(commands))


def unmetafy(content: bytes) -> bytes:
    """Undo zsh's escaping."""
    head, *rest = content.split(bytes([_META]))
    return head + b"".join(bytes([piece[0] ^ 0x20]) + piece[1:] for piece in rest if piece)


def _fish_character(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else "\\"


def _document(file: ImportFile, commands: str) -> Document:
    if not commands.strip():
        raise InputError("no commands in it")
    return Document(file.name, (Part(SHELL, commands),))


BASH = FormatReader("bash history", _is_bash, _read_bash, MAX_TEXT_BYTES)
ZSH = FormatReader("zsh history", _is_zsh, _read_zsh, MAX_TEXT_BYTES)
FISH = FormatReader("fish history", _is_fish, _read_fish, MAX_TEXT_BYTES)
