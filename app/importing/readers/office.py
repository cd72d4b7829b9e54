"""Word processor documents (`.docx` and `.odt`) as Markdown.

Unsupported office formats are claimed, too, so that the reason names a way out.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from app.importing.import_file import (
    MAX_PDF_BYTES,
    MAX_TEXT_BYTES,
    NO_TEXT,
    FormatReader,
    ImportFile,
    Outcome,
    mebibytes,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
MAX_HEADING = 6

UNREAD = {
    ".doc": "save it as .docx",
    ".rtf": "save it as .docx",
    ".pages": "export it as .docx or PDF",
    ".xls": "save it as CSV",
    ".xlsx": "save it as CSV",
    ".ods": "save it as CSV",
    ".numbers": "export it as CSV",
    ".ppt": "save it as PDF",
    ".pptx": "save it as PDF",
    ".odp": "save it as PDF",
    ".key": "export it as PDF",
    ".mobi": "convert it to EPUB",
    ".azw3": "convert it to EPUB",
    ".djvu": "convert it to PDF",
}
"""Suffix of an unsupported format → way out."""
_BINARY_STARTS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"{\\rtf", b"AT&TFORM")
_KINDLE = b"BOOKMOBI"


def _claims_unread(file: ImportFile) -> bool:
    known = file.head.startswith(_BINARY_STARTS) or _KINDLE in file.head[:100]
    return file.suffix in UNREAD and known


def _refuse(file: ImportFile) -> Iterator[Outcome]:
    raise InputError(f"{file.suffix} is not read: {UNREAD[file.suffix]}")
    yield  # readers are generators


OTHER_OFFICE = FormatReader("other office documents", _claims_unread, _refuse)


def _claims(file: ImportFile) -> bool:
    return file.suffix in _BODIES and file.head.startswith(b"PK\x03\x04")


def _read(file: ImportFile) -> Iterator[Outcome]:
    member, blocks = _BODIES[file.suffix]
    text = "\n\n".join(block for block in blocks(_xml(file, member)) if block.strip())
    if not text:
        raise InputError(NO_TEXT)
    yield Document(file.name, (Part(NOTES, text),))


OFFICE = FormatReader("office document", _claims, _read, MAX_PDF_BYTES)


def _xml(file: ImportFile, member: str) -> Element:
    try:
        with file.open() as stream, zipfile.ZipFile(stream) as opened, opened.open(member) as body:
            content = body.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise InputError(f"more than {mebibytes(MAX_TEXT_BYTES)} of text")
        if b"<!DOCTYPE" in content:  # it could declare entities that expand without end
            raise InputError("damaged document")
        return ElementTree.fromstring(content)
    except (
        KeyError,
        ValueError,
        RuntimeError,
        zipfile.BadZipFile,
        ElementTree.ParseError,
    ) as error:
        raise InputError("damaged or encrypted document") from error


def _word_blocks(part: Element) -> Iterator[str]:
    """Paragraphs and table rows, in order."""
    for one in part:
        if one.tag == f"{WORD}p":
            yield _word_paragraph(one)
        elif one.tag == f"{WORD}tr":
            cells = (" ".join(_word_blocks(cell)) for cell in one.iter(f"{WORD}tc"))
            yield f"| {' | '.join(cells)} |"
        else:
            yield from _word_blocks(one)


def _word_paragraph(paragraph: Element) -> str:
    signs = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n", f"{WORD}noBreakHyphen": "-"}
    pieces = []
    for one in paragraph.iter():
        pieces.append(one.text or "" if one.tag == f"{WORD}t" else signs.get(one.tag, ""))
    style = paragraph.find(f"{WORD}pPr/{WORD}pStyle")
    name = "" if style is None else style.get(f"{WORD}val", "")
    is_item = paragraph.find(f"{WORD}pPr/{WORD}numPr") is not None
    text = "".join(pieces).strip()
    if name.lower().startswith("heading") and name[-1].isdigit():
        return _heading(int(name[-1]), text)
    return _heading(1, text) if name == "Title" else f"- {text}" if is_item and text else text


def _heading(level: int, text: str) -> str:
    return f"{'#' * min(max(level, 1), MAX_HEADING)} {text}" if text else ""


def _open_blocks(part: Element) -> Iterator[str]:
    for one in part:
        if one.tag == f"{TEXT}h":
            level = one.get(f"{TEXT}outline-level", "1")
            yield _heading(int(level) if level.isdigit() else 1, _open_text(one))
        elif one.tag == f"{TEXT}p":
            yield _open_text(one)
        elif one.tag == f"{TEXT}list-item":
            yield f"- {' '.join(_open_blocks(one))}"
        elif one.tag == f"{TABLE}table-row":
            cells = (" ".join(_open_blocks(cell)) for cell in one.iter(f"{TABLE}table-cell"))
            yield f"| {' | '.join(cells)} |"
        elif one.tag != f"{TEXT}tracked-changes":
            yield from _open_blocks(one)


def _open_text(element: Element) -> str:
    signs = {f"{TEXT}tab": "\t", f"{TEXT}line-break": "\n", f"{TEXT}s": " "}
    pieces = [signs.get(element.tag, ""), element.text or ""]
    for child in element:
        pieces += [_open_text(child), child.tail or ""]
    return "".join(pieces)


_BODIES: dict[str, tuple[str, Callable[[Element], Iterator[str]]]] = {
    ".docx": ("word/document.xml", _word_blocks),
    ".odt": ("content.xml", _open_blocks),
}
"""Suffix → the member with the text, and its reader."""
