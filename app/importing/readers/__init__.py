"""The formats, one small file each. A new one is a file with a `FormatReader` and a line here."""

from __future__ import annotations

from app.importing.readers import chat_exports, pdf_html, shell_history, text
from app.importing.readers.pdf_html import TextExtractor
from app.importing.source_file import FormatReader


def make_readers(worker: TextExtractor) -> tuple[FormatReader, ...]:
    """All readers; the first that claims a file reads it, and the last claims everything."""
    return (
        pdf_html.make_pdf_reader(worker),
        text.NOTEBOOK,
        chat_exports.SPECCHAT,
        chat_exports.CHATGPT,
        chat_exports.CLAUDE,
        chat_exports.SHAREGPT,
        chat_exports.MESSAGES,
        shell_history.BASH,
        shell_history.ZSH,
        shell_history.FISH,
        pdf_html.make_html_reader(worker),
        text.JSON,
        text.TEXT,
    )
