"""Shell histories: what was typed, one command after the other.

Three shells, three ways to write it down: bash puts `#1700000000` before a command if it keeps
times (tcsh `#+1700000000`), zsh `: 1700000000:0;` and a backslash at the end of each line but the
last, fish something that looks like YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.importing.charset import decode
from app.importing.source_file import TEXT_BYTES, Outcome, Reader, SourceFile
from datastores.errors import InputError
from datastores.library.documents import SHELL, Document, Part

_BASH_TIME = re.compile(rb"^#\+?\d{9,}\r?(?:\n|\Z)", re.MULTILINE)
_ZSH_ENTRY = re.compile(r"^: \d+:\d+;", re.MULTILINE)
_FISH_ENTRY = re.compile(r"^- cmd: (.*)", re.MULTILINE)
_FISH_ESCAPE = re.compile(r"\\(n|\\)")

_META = 0x83
"""zsh writes a byte it uses itself as this one, followed by the byte with bit 5 flipped."""


def _is_bash(material: SourceFile) -> bool:
    named = material.filename in {".bash_history", "bash_history", ".sh_history", ".history"}
    return named or bool(_BASH_TIME.match(material.head))


def _is_zsh(material: SourceFile) -> bool:
    named = material.filename in {".zsh_history", "zsh_history", ".zhistory", ".histfile"}
    return named or re.match(rb": \d{9,}:\d+;", material.head) is not None


def _is_fish(material: SourceFile) -> bool:
    named = material.filename == "fish_history"
    return named or re.match(rb"- cmd: .*\n  when: \d", material.head) is not None


def _read_bash(material: SourceFile) -> Iterator[Outcome]:
    content = _BASH_TIME.sub(b"", material.read(TEXT_BYTES))
    yield _document(material, decode(content)[0])


def _read_zsh(material: SourceFile) -> Iterator[Outcome]:
    text, _ = decode(unmetafied(material.read(TEXT_BYTES)))
    yield _document(material, _ZSH_ENTRY.sub("", text.replace("\\\n", "\n")))


def _read_fish(material: SourceFile) -> Iterator[Outcome]:
    text, _ = decode(material.read(TEXT_BYTES))
    commands = (_FISH_ESCAPE.sub(_fish_character, command) for command in _FISH_ENTRY.findall(text))
    yield _document(material, "\n".join(commands))


def unmetafied(content: bytes) -> bytes:
    """What was typed, from what zsh writes."""
    head, *rest = content.split(bytes([_META]))
    return head + b"".join(bytes([piece[0] ^ 0x20]) + piece[1:] for piece in rest if piece)


def _fish_character(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else "\\"


def _document(material: SourceFile, commands: str) -> Document:
    if not commands.strip():
        raise InputError("a history with no commands in it")
    return Document(material.name, (Part(SHELL, commands),))


BASH = Reader("bash history", _is_bash, _read_bash, TEXT_BYTES)
ZSH = Reader("zsh history", _is_zsh, _read_zsh, TEXT_BYTES)
FISH = Reader("fish history", _is_fish, _read_fish, TEXT_BYTES)
