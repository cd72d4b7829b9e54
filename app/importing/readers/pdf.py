"""PDFs: the text of all pages.

Owns which files are PDFs, and how text is made of their pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.importing.source_file import (
    MAX_PDF_BYTES,
    NO_TEXT,
    FormatReader,
    Outcome,
    SourceFile,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

_WRAPPED_LINE = re.compile(r"(?<=[a-z,;])\n(?=[a-z(])")
"""A line end within a sentence: where the line was full, not where the author wanted one."""


def _claims(file: SourceFile) -> bool:
    return file.head.startswith(b"%PDF-") or file.suffix == ".pdf"


def _read(file: SourceFile) -> Iterator[Outcome]:
    text = pdf_text(file.read(MAX_PDF_BYTES))
    if not text.strip():
        raise InputError(NO_TEXT)
    yield Document(file.name, (Part(NOTES, text),))


PDF = FormatReader("PDF", _claims, _read, MAX_PDF_BYTES)


def pdf_text(content: bytes) -> str:
    """The text of all pages."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
        pages = [page.get_textpage().get_text_range() for page in document]
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise InputError("encrypted PDF" if locked else "damaged or truncated PDF") from error
    # U+FFFE and U+0002 mark a word that was hyphenated at the end of a line.
    text = re.sub("[\ufffe\x02](?:\r?\n)?", "", "\n\n".join(pages))
    return _WRAPPED_LINE.sub(" ", text.replace("\r\n", "\n").replace("\0", ""))
