"""Text of any kind: notebooks, notes and source code, and JSON other than chat exports.

A Jupyter notebook yields the sources of its cells without outputs; consecutive cells of one kind
are one part, so that prose and code stay apart. Anything else is source code if its name matches
one of the more than 900 patterns that Pygments knows, else a note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from io import BytesIO
from itertools import groupby
from typing import Any

from pygments.lexers import get_all_lexers

from app.importing.encodings import decode
from app.importing.events import SkippedFile
from app.importing.import_file import (
    MAX_JSON_BYTES,
    MAX_TEXT_BYTES,
    FormatReader,
    ImportFile,
    Outcome,
)
from app.importing.json_stream import mapping, require_shallow, sequence, string
from datastores.errors import InputError
from datastores.library.documents import CODE, NOTES, Document, Part

_PROSE = frozenset({"text", "markdown", "rst", "org", "tex", "todotxt"})
"""Aliases of Pygments' lexers whose formats count as notes."""


def _claims_anything(file: ImportFile) -> bool:
    return True


def read_text(file: ImportFile) -> Iterator[Outcome]:
    """The file as one text, whatever its name."""
    text, notice = decode(file.read(MAX_TEXT_BYTES))
    if notice:
        yield SkippedFile(file.name, notice)
    yield Document(file.name, (Part(kind_of(file.filename), text),))


@cache
def kind_of(filename: str) -> str:
    """`CODE` if `filename`, given in lower case, is that of a source file, else `NOTES`."""
    suffixes, patterns = _source_names()
    suffix = "." + filename.rpartition(".")[2]
    known = suffix in suffixes or any(fnmatchcase(filename, pattern) for pattern in patterns)
    return CODE if known else NOTES


@cache
def _source_names() -> tuple[frozenset[str], tuple[str, ...]]:
    """Suffixes, and all other patterns (`makefile`), in lower case."""
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


TEXT = FormatReader("text", _claims_anything, read_text, MAX_TEXT_BYTES)


def read_json_text(file: ImportFile) -> Iterator[Outcome]:
    """JSON that people write (settings, package lists, small data), unchanged except that escaped
    letters are decoded."""
    content = file.read(MAX_JSON_BYTES)
    require_shallow(BytesIO(content))
    text = _ESCAPES.sub(_letters, decode(content)[0])
    yield Document(file.name, (Part(CODE, text),))


_ESCAPES = re.compile(r"\\\\|(?:\\u(?!00[0-9])[0-9a-fA-F]{4})+")
"""Escaped backslashes, and runs of escaped letters from U+00A0 on."""


def _letters(match: re.Match[str]) -> str:
    """The escaped letters, with U+FFFD for lone surrogates; an escaped backslash stays."""
    units = match[0].split("\\u")[1:]
    letters = b"".join(bytes.fromhex(unit) for unit in units)
    return letters.decode("utf-16-be", "replace") or match[0]


_KINDS = {"code": CODE, "markdown": NOTES, "raw": NOTES, "heading": NOTES}


def _claims_notebook(file: ImportFile) -> bool:
    return file.suffix == ".ipynb"


def _read_notebook(file: ImportFile) -> Iterator[Outcome]:
    cells = [
        (_KINDS[kind], source)
        for kind, source in _cells(_parsed(file.read(MAX_TEXT_BYTES)))
        if kind in _KINDS and source.strip()
    ]
    parts = tuple(
        Part(kind, "\n\n".join(source for _, source in run))
        for kind, run in groupby(cells, key=lambda cell: cell[0])
    )
    if not parts:
        raise InputError("an empty notebook")
    yield Document(file.name, parts)


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise InputError("damaged notebook") from error


def _cells(notebook: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and source of each cell; before format 4 in worksheets, with code as `input`."""
    sheets = [notebook, *map(mapping, sequence(notebook.get("worksheets")))]
    for sheet in sheets:
        for cell in map(mapping, sequence(sheet.get("cells"))):
            source = cell.get("source", cell.get("input"))
            lines = string(source) or "".join(map(string, sequence(source)))
            yield string(cell.get("cell_type")), lines


NOTEBOOK = FormatReader("notebook", _claims_notebook, _read_notebook, MAX_TEXT_BYTES)
