"""The formats that can be imported, one `FormatReader` each; `make_readers` is the registry.

A new format is a small file here with a function that claims files by name and head, one that
yields their documents, and a `FormatReader` of both, plus a line below. A JSON chat export needs no
reader of its own if it is a list or a tree of messages: add its keys to `chat_records` or
`chat_messages`. Readers run in a process that may die (`reader_process`), so their parsers need not
withstand hostile files.
"""

from __future__ import annotations

from app.importing.import_file import FormatReader


def make_readers() -> tuple[FormatReader, ...]:
    """All readers; the first that claims a file reads it, and the last claims everything."""
    # Imported here: the parent of the reader process needs none of them.
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
    """The readers for attachments, for which chat exports and shell histories are plain texts."""
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
