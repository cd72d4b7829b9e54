"""From a file to documents that may be stored: archives opened, formats told, secrets taken out.

Bytes to text, whatever they were written in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.importing.archives import named_damage, opener
from app.importing.find_files import unreadable
from app.importing.source_file import Flaw, Outcome, Reader, SourceFile, mebibytes
from datastores.chats.history import storable
from datastores.errors import InputError
from datastores.library.documents import Document, Part
from datastores.redaction import redact


def documents(material: SourceFile, readers: Sequence[Reader]) -> Iterator[Outcome]:
    """All documents in a file, and what is wrong with the rest; never raises for its content.

    Yields something of every file: nothing is passed over in silence.
    """
    silent = True
    for outcome in _outcomes(material, readers):
        silent = False
        yield outcome
    if silent:
        yield Flaw(material.name, "nothing in it")


def too_large(material: SourceFile, readers: Sequence[Reader]) -> bool:
    """Whether it would be refused for its size alone, without a look at more than its head.

    Raises:
        OSError: not even that can be had.
    """
    if opener(material) is not None:
        return False
    limit = _reader(material, readers).limit
    return limit is not None and material.size > limit


def prepared(document: Document) -> tuple[Document, int]:
    """The document as it may be stored, without secrets, and how many there were."""
    title, hits = redact(_tidy(document.title))
    parts = []
    for part in document.parts:
        text, found = redact(_tidy(part.text))
        hits += found
        parts.append(Part(part.kind, text, part.role))
    return Document(title, tuple(parts)), hits


def _outcomes(material: SourceFile, readers: Sequence[Reader]) -> Iterator[Outcome]:
    try:
        with named_damage():
            members = opener(material)
            if members is None:
                yield from _read(material, readers)
                return
            for member in members(material):
                yield from [member] if isinstance(member, Flaw) else _member(member, readers)
    except InputError as error:
        yield Flaw(material.name, str(error))
    except OSError as error:
        yield Flaw(material.name, unreadable(error))


def _member(member: SourceFile, readers: Sequence[Reader]) -> Iterator[Outcome]:
    """A file within an archive: its damage costs only itself."""
    try:
        with named_damage():
            if opener(member) is None:
                yield from _read(member, readers)
            else:
                yield Flaw(member.name, "an archive within an archive")
    except InputError as error:
        yield Flaw(member.name, str(error))


def _read(material: SourceFile, readers: Sequence[Reader]) -> Iterator[Outcome]:
    reader = _reader(material, readers)
    if reader.limit is not None and material.size > reader.limit:
        raise InputError(f"larger than {mebibytes(reader.limit)}")
    for outcome in reader.read(material):
        if isinstance(outcome, Document) and not any(part.text.strip() for part in outcome.parts):
            yield Flaw(material.name, "empty")
        else:
            yield outcome


def _reader(material: SourceFile, readers: Sequence[Reader]) -> Reader:
    return next(reader for reader in readers if reader.claims(material))


def _tidy(text: str) -> str:
    """Text as the library keeps it: no zero bytes, no lone surrogates, plain newlines."""
    return storable(text.replace("\0", "").replace("\r\n", "\n"))
