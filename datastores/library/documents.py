"""What is imported, before and after it is stored: documents made of parts.

A part is a stretch of text that nothing runs into: one message of a chat, one run of a notebook's
cells, a whole page. Refuses to know files, formats and tokens.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

CHATS = "chats"
NOTES = "notes"
CODE = "code"
SHELL = "shell"


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of text.

    Attributes:
        kind: chats, notes, code or shell.
        text: never empty.
        role: in chats, user or assistant; empty elsewhere.
    """

    kind: str
    text: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A page, a source file, a conversation: what a person would call one text."""

    title: str
    parts: tuple[Part, ...]

    @property
    def characters(self) -> int:
        """Length of all parts together."""
        return sum(len(part.text) for part in self.parts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the parts, in order; the title does not count. Identity of the content."""
        content = hashlib.sha256()
        for part in self.parts:
            for value in (part.kind, part.role, part.text):
                encoded = value.encode()
                content.update(len(encoded).to_bytes(8, "little") + encoded)
        return content.digest()


@dataclass(frozen=True, slots=True)
class StoreDocument:
    """Store `document` as number `position` of `file`, a name within `source`."""

    source: str
    file: str
    position: int
    document: Document


@dataclass(frozen=True, slots=True)
class FinishFile:
    """`file` was read to its end.

    Attributes:
        digest: of its bytes, so that it need not be read again; empty where it should be, since
            something in it could not be used.
        count: documents found in it.
    """

    source: str
    file: str
    digest: str
    count: int


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """One place a document was imported from: a file, named within its source."""

    source: str
    file: str
    title: str


@dataclass(frozen=True, slots=True)
class Source:
    """Something a person imported: one file, or one folder with all that was in it.

    Attributes:
        path: the absolute path that was given; its name for ever.
        files, documents, characters: what is stored of it.
        kinds: the kinds of its parts, in alphabetical order.
        whole: false where reading a file was stopped half-way.
    """

    path: str
    files: int
    documents: int
    characters: int
    kinds: tuple[str, ...]
    whole: bool
