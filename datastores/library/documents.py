"""Imported documents and their parts.

A part is a piece of text that is drafted from separately: one message of a chat, consecutive cells
of a notebook, a whole page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CHATS = "chats"
NOTES = "notes"
CODE = "code"
SHELL = "shell"


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of text.

    Attributes:
        kind: `CHATS`, `NOTES`, `CODE` or `SHELL`.
        text: never empty.
        role: user or assistant in chats; empty elsewhere.
    """

    kind: str
    text: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One text, as a person sees it: a page, a source file or a conversation."""

    title: str
    parts: tuple[Part, ...]

    @property
    def characters(self) -> int:
        """Total length of all parts."""
        return sum(len(part.text) for part in self.parts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the parts in order, without the title: identifies the content."""
        import hashlib  # here, as citations need only the names above

        content = hashlib.sha256()
        for part in self.parts:
            for value in (part.kind, part.role, part.text):
                encoded = value.encode()
                content.update(len(encoded).to_bytes(8, "little") + encoded)
        return content.digest()


_DATED = re.compile(r"(?P<title>.*\S) \((?P<date>\d{4}-\d\d-\d\d)\)", re.DOTALL)


def dated_title(title: str, date: str) -> str:
    """The title of a chat that began on `date`, as `2025-08-12`; empty if that is unknown."""
    return f"{title} ({date})" if date else title


def split_title(title: str) -> tuple[str, str]:
    """A chat's title and date, from its `dated_title`."""
    found = _DATED.fullmatch(title)
    return (found["title"], found["date"]) if found else (title, "")


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
        digest: digest of its bytes, by which it need not be read again; empty if it should be,
            since something in it could not be used.
        count: number of documents found in it.
    """

    import_path: str
    file: str
    digest: str
    count: int


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """A place that a document was imported from: a file, named within its import.

    Attributes:
        kind: of its first part.
    """

    import_path: str
    import_name: str
    file: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class Import:
    """One imported file, or one imported folder with its files.

    Attributes:
        path: its absolute path, which identifies the import.
        name: what the person calls it; unique.
        files, documents, characters: amounts that are stored.
        kinds: the kinds of its parts, in alphabetical order.
        whole: false if reading a file was interrupted.
    """

    path: str
    name: str
    files: int
    documents: int
    characters: int
    kinds: tuple[str, ...]
    whole: bool
