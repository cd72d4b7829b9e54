"""The formats that can be imported, one `FormatReader` each; `make_readers` is the registry.

A new format is a small file here: a function that claims files by name and head, one that yields
their documents, a `FormatReader` of both, and its line below. An export of chats as JSON needs none
if it is a list or a tree of messages; keys that are new go into `chat_records` or `chat_messages`.
Readers run in a process that may die (`reader_process`), so they may call parsers that hostile
files break.
"""

from __future__ import annotations

from app.importing.import_file import FormatReader


def make_readers() -> tuple[FormatReader, ...]:
    """All readers; the first that claims a file reads it, and the last claims everything."""
    # Imported here: whoever starts the process that reads needs no reader.
    from app.importing.archives import UNREAD_ARCHIVE
    from app.importing.readers import chat_exports, html, mail, office, pdf, shell_history, text

    return (
        UNREAD_ARCHIVE,
        pdf.PDF,
        office.OFFICE,
        office.OTHER_OFFICE,
        mail.MAIL,
        mail.MAILBOX,
        text.NOTEBOOK,
        shell_history.BASH,
        shell_history.ZSH,
        shell_history.FISH,
        html.HTML,
        chat_exports.JSON,
        text.TEXT,
    )


def attachment_readers() -> tuple[FormatReader, ...]:
    """The readers of what goes with a question: chats and histories are texts like any other."""
    from app.importing.archives import UNREAD_ARCHIVE
    from app.importing.readers import html, mail, office, pdf, text

    return (
        UNREAD_ARCHIVE,
        pdf.PDF,
        office.OFFICE,
        office.OTHER_OFFICE,
        mail.MAIL,
        mail.MAILBOX,
        text.NOTEBOOK,
        html.HTML,
        text.TEXT,
    )
