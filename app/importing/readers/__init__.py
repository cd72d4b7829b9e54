"""The formats that can be imported, one `FormatReader` each; `make_readers` is the registry.

A new format is a small file here: a function that claims files by name and head, one that yields
their documents, a `FormatReader` of both, and its line below. An export of chats as JSON needs none
if it is a list or a tree of messages; keys that are new go into `chat_records` or `chat_messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.importing.source_file import FormatReader

if TYPE_CHECKING:
    from app.importing.readers.text_extractor import TextExtractor


def make_readers(extractor: TextExtractor) -> tuple[FormatReader, ...]:
    """All readers; the first that claims a file reads it, and the last claims everything."""
    # Imported here: the process of `text_extractor` is in this package, and needs few of them.
    from app.importing.readers import chat_exports, html, pdf, shell_history, text

    return (
        pdf.make_pdf_reader(extractor),
        text.NOTEBOOK,
        shell_history.BASH,
        shell_history.ZSH,
        shell_history.FISH,
        html.make_html_reader(extractor),
        chat_exports.make_json_reader(extractor),
        text.TEXT,
    )
