"""PDFs: the text of all pages, in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from app.importing.import_file import (
    MAX_PDF_BYTES,
    NO_TEXT,
    FormatReader,
    ImportFile,
    Outcome,
)
from app.importing.readers.pdf_columns import TextBox, is_joined, reading_order
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

if TYPE_CHECKING:
    from pypdfium2 import PdfTextPage

_WRAPPED_LINE = re.compile(r"(?<=[a-z,;])\n(?=[a-z(])")
"""A line end within a sentence, which comes from wrapping."""

_HYPHEN = re.compile("[\ufffe\x02](?:\r?\n)?")
"""PDFium's marks of a word hyphenated at the end of a line."""
_LINE_END_HYPHEN = re.compile("(?<=[a-z])[-\ufffe\x02]\n(?=[a-z])")


def _claims(file: ImportFile) -> bool:
    return file.head.startswith(b"%PDF-") or file.suffix == ".pdf"


def _read(file: ImportFile) -> Iterator[Outcome]:
    text = pdf_text(file.read(MAX_PDF_BYTES))
    if not text.strip():
        raise InputError(NO_TEXT)
    yield Document(file.name, (Part(NOTES, text),))


PDF = FormatReader("PDF", _claims, _read, MAX_PDF_BYTES)


def pdf_text(content: bytes) -> str:
    """The text of all pages.

    Raises:
        InputError: it is encrypted or damaged.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
        pages = [_page_text(page.get_textpage()) for page in document]
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise InputError("encrypted PDF" if locked else "damaged or truncated PDF") from error
    text = _HYPHEN.sub("", "\n\n".join(pages))
    return _WRAPPED_LINE.sub(" ", text.replace("\r\n", "\n").replace("\0", ""))


def _page_text(page: PdfTextPage) -> str:
    """The text of a page in the order of its columns, else of the file."""
    boxes = []
    for number in range(page.count_rects()):
        left, bottom, right, top = page.get_rect(number)
        boxes.append(TextBox(left, bottom, right, top, number))
    lines = reading_order(boxes)
    if not lines:
        return str(page.get_text_range())
    return _LINE_END_HYPHEN.sub("", "\n".join(_line_text(page, line) for line in lines))


def _line_text(page: PdfTextPage, line: Sequence[TextBox]) -> str:
    texts = [page.get_text_bounded(box.left, box.bottom, box.right, box.top) for box in line]
    joined = texts[:1]
    for first, second, text in zip(line, line[1:], texts[1:], strict=False):
        joined += [text] if is_joined(first, second) else [" ", text]
    return " ".join("".join(joined).split())
