"""Anything else that is text: Markdown, plain text, source code.

What is source code is asked of Pygments, which knows the names of more than 900 kinds of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from pygments.lexers import get_all_lexers

from app.importing.encoding import decode
from app.importing.limits import TEXT_BYTES
from app.importing.material import Flaw, Material, Outcome, Reader
from datastores.documents import CODE, NOTES, Document, Part

_PROSE = frozenset({"text", "markdown", "rst", "org", "tex", "todotxt"})
"""Aliases of what Pygments also knows but people call notes."""


def _claims(material: Material) -> bool:
    return True


def _read(material: Material) -> Iterator[Outcome]:
    text, mixed = decode(material.read(TEXT_BYTES))
    if mixed:
        yield Flaw(material.name, "in several encodings: imported, some characters may be wrong")
    yield Document(material.name, (Part(kind_of(material.filename), text),))


@cache
def kind_of(filename: str) -> str:
    """`CODE` for the name, in small letters, of a source file, else `NOTES`."""
    suffixes, patterns = _source_names()
    suffix = "." + filename.rpartition(".")[2]
    known = suffix in suffixes or any(fnmatchcase(filename, pattern) for pattern in patterns)
    return CODE if known else NOTES


@cache
def _source_names() -> tuple[frozenset[str], tuple[str, ...]]:
    """Suffixes, and patterns that are more than a suffix (`makefile`), in small letters."""
    patterns = {
        pattern.lower()
        for _, aliases, names, _ in get_all_lexers(plugins=False)
        for pattern in names
        if not _PROSE.intersection(aliases)
    }
    suffixes = {pattern for pattern in patterns if pattern.startswith("*.") and pattern.isascii()}
    simple = {pattern[1:] for pattern in suffixes if not set("*?[") & set(pattern[1:])}
    others = {pattern for pattern in patterns if pattern[1:] not in simple}
    return frozenset(simple), tuple(sorted(others))


READER = Reader("text", _claims, _read, TEXT_BYTES)
