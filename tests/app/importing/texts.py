"""What the tests ask of a library, and small files in every format."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from app.importing.events import SkippedFile
from app.importing.import_file import ImportFile
from app.importing.readers import make_readers
from app.importing.reading import read_file
from datastores.library.documents import Document
from datastores.library.library import Library


def stored(library: Library) -> dict[str, list[tuple[str, str, str]]]:
    """Title → parts (kind, role, text) of everything stored."""
    rows = library.store.rows(
        "SELECT title, kind, role, content FROM documents JOIN parts USING (text)"
        " ORDER BY source, file, documents.position, parts.position"
    )
    found: dict[str, list[tuple[str, str, str]]] = {}
    for row in rows:
        found.setdefault(row["title"], []).append((row["kind"], row["role"], row["content"]))
    return found


def import_file(name: str, content: bytes) -> ImportFile:
    """A file that stands nowhere."""
    return ImportFile(name, len(content), lambda: io.BytesIO(content))


def read(name: str, content: bytes) -> tuple[list[Document], list[SkippedFile]]:
    """What the readers make of one file that stands nowhere."""
    outcomes = list(read_file(import_file(name, content), make_readers()))
    return (
        [outcome for outcome in outcomes if isinstance(outcome, Document)],
        [outcome for outcome in outcomes if isinstance(outcome, SkippedFile)],
    )


def turns(name: str, value: object) -> list[list[tuple[str, str]]]:
    """(role, text) of the messages of each chat in a JSON file, which must be without skipped."""
    found, skipped = read(name, json.dumps(value).encode())
    assert not skipped
    return [[(part.role, part.text) for part in document.parts] for document in found]


def zipped(path: Path, members: Mapping[str, bytes]) -> Path:
    """A ZIP of `members` at `path`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def pdf(text: str) -> bytes:
    """The smallest PDF that shows `text` (ASCII, without brackets)."""
    return pdf_of(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET")


def pdf_of(drawn: str) -> bytes:
    """A PDF of one page, on which `drawn` (operators of PDF, ASCII) shows something."""
    stream = drawn.encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    content, places = b"%PDF-1.4\n", []
    for number, item in enumerate(objects, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(content)
    return content + (
        b"xref\n0 6\n0000000000 65535 f \n%s"
        b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (table, start)
    )


def chatgpt_node(
    parent: str | None, role: str, *parts: object, **message: object
) -> dict[str, object]:
    """A node of a ChatGPT conversation; keywords go into its message."""
    content = {"content_type": "text", "parts": list(parts)}
    return {
        "parent": parent,
        "children": [],
        "message": {"author": {"role": role}, "content": content, "recipient": "all", **message},
    }


def chatgpt(title: str, *texts: str) -> dict[str, object]:
    """A ChatGPT conversation without branches, the person's message first."""
    nodes: dict[str, object] = {"root": {"parent": None, "children": ["0"], "message": None}}
    for number, text in enumerate(texts):
        parent = str(number - 1) if number else "root"
        nodes[str(number)] = chatgpt_node(parent, ("user", "assistant")[number % 2], text)
    return {"title": title, "mapping": nodes, "current_node": str(len(texts) - 1)}
