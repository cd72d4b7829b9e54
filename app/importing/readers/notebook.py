"""Jupyter notebooks: the sources of their cells, without outputs.

JSON by definition, so no library beyond `json` is needed. Runs of cells of one kind are one part:
prose and code do not run into each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from app.importing.limits import TEXT_BYTES
from app.importing.material import Material, Outcome, Reader
from app.importing.readers.conversation import mapping, sequence, string
from datastores.documents import CODE, NOTES, Document, Part
from datastores.errors import InputError

_KINDS = {"code": CODE, "markdown": NOTES, "raw": NOTES, "heading": NOTES}


def _claims(material: Material) -> bool:
    return material.suffix == ".ipynb"


def _read(material: Material) -> Iterator[Outcome]:
    cells = [
        (_KINDS[kind], source)
        for kind, source in _cells(_parsed(material.read(TEXT_BYTES)))
        if kind in _KINDS and source.strip()
    ]
    parts = tuple(
        Part(kind, "\n\n".join(source for _, source in run))
        for kind, run in groupby(cells, key=lambda cell: cell[0])
    )
    if not parts:
        raise InputError("a notebook with nothing in it")
    yield Document(material.name, parts)


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise InputError("damaged notebook") from error


def _cells(notebook: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and source of each cell; before format 4 they stood in worksheets, code as `input`."""
    sheets = [notebook, *map(mapping, sequence(notebook.get("worksheets")))]
    for sheet in sheets:
        for cell in map(mapping, sequence(sheet.get("cells"))):
            source = cell.get("source", cell.get("input"))
            lines = string(source) or "".join(map(string, sequence(source)))
            yield string(cell.get("cell_type")), lines


READER = Reader("notebook", _claims, _read, TEXT_BYTES)
