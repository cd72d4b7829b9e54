"""What is imported, before and after it is stored: documents made of parts.

A part is a piece of text that is drafted from on its own: one message of a chat, consecutive cells
of a notebook, a whole page. Refuses to know files, formats and tokens.
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
    """One piece of text.

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
    """A page, a source file or a conversation: what a person would call one text."""

    title: str
    parts: tuple[Part, ...]

    @property
    def characters(self) -> int:
        """Length of all parts together."""
        return sum(len(part.text) for part in self.parts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the parts in order, without the title: identifies the content."""
        content = hashlib.sha256()
        for part in self.parts:
            for value in (part.kind, part.role, part.text):
                encoded = value.encode()
                content.update(len(encoded).to_bytes(8, "little") + encoded)
        return content.digest()


@dataclass(frozen=True, slots=True)
class StoreDocument:
    """Write `document` as number `position` of `file`, a name within `import_path`."""

    import_path: str
    file: str
    position: int
    document: Document


@dataclass(frozen=True, slots=True)
class FinishFile:
    """Mark `file` as read to its end.

    Attributes:
        digest: of its bytes, so that it need not be read again; empty if it should be, because
            something in it could not be used.
        count: documents found in it.
    """

    import_path: str
    file: str
    digest: str
    count: int


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """One place a document was imported from: a file, named within its import."""

    import_path: str
    file: str
    title: str


@dataclass(frozen=True, slots=True)
class Import:
    """Something a person imported: one file, or one folder with its files.

    Attributes:
        path: the absolute path that was given; identifies the import.
        files, documents, characters: how much of it is stored.
        kinds: the kinds of its parts, in alphabetical order.
        whole: false if reading a file was interrupted.
    """

    path: str
    files: int
    documents: int
    characters: int
    kinds: tuple[str, ...]
    whole: bool
