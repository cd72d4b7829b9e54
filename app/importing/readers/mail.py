"""Mails (`.eml`), mailboxes (mbox), and web pages saved as mails (`.mht`).

A mail becomes its subject, the headers that people read, and its text; of alternatives the plain
one, else HTML as Markdown. Attachments with text follow; others are named.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from itertools import chain

from app.importing.encodings import decode
from app.importing.events import SkippedFile
from app.importing.import_file import (
    MAX_ENTRY_BYTES,
    MAX_PDF_BYTES,
    NO_TEXT,
    FormatReader,
    ImportFile,
    Outcome,
    mebibytes,
)
from app.importing.readers.html import html_text
from app.importing.readers.pdf import pdf_text
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

SHOWN_HEADERS = ("From", "To", "Cc", "Date")
MAX_DEPTH = 20
"""Most levels of nested parts; mails have about five."""
PLAIN, HTML_TYPE = "text/plain", "text/html"
NO_TEXTS = ("image", "audio", "video", "font")
"""Main types of attachments without text."""

_HEADER = re.compile(rb"[A-Za-z][A-Za-z-]*:[ \t]")
_MIME = re.compile(rb"^MIME-Version:[ \t]*1", re.IGNORECASE | re.MULTILINE)
_SENDER = re.compile(rb"^From:[ \t]", re.IGNORECASE | re.MULTILINE)
_SEPARATOR = re.compile(rb"From \S.*\d{4}")
_BOX_START = re.compile(rb"(?=%b)[^\n]*\n[A-Za-z][A-Za-z-]*:" % _SEPARATOR.pattern)
_QUOTED_SEPARATOR = re.compile(rb"^>(>*From )", re.MULTILINE)
_SAVED_BY = re.compile(r"<?Saved by ", re.IGNORECASE)
"""Sender of a page that a browser saved."""


def _claims_mail(file: ImportFile) -> bool:
    if file.suffix in (".eml", ".emlx", ".mht", ".mhtml"):
        return True
    head = file.head
    return bool(_HEADER.match(head) and _MIME.search(head) and _SENDER.search(head))


def _read_mail(file: ImportFile) -> Iterator[Outcome]:
    content = file.read(MAX_PDF_BYTES)
    if file.suffix == ".emlx":  # Apple's: a line with the length, the mail, a property list
        length, _, rest = content.partition(b"\n")
        content = rest[: int(length)] if length.strip().isdigit() else content
    yield Document(file.name, (Part(NOTES, mail_text(content)),))


MAIL = FormatReader("mail", _claims_mail, _read_mail, MAX_PDF_BYTES)


def _claims_mailbox(file: ImportFile) -> bool:
    return file.suffix == ".mbox" or _BOX_START.match(file.head) is not None


def _read_mailbox(file: ImportFile) -> Iterator[Outcome]:
    """A document for each mail; an unreadable one is skipped."""
    for number, content in enumerate(_box_mails(file), start=1):
        name = f"{file.name}, mail {number}"
        if len(content) > MAX_ENTRY_BYTES:
            yield SkippedFile(name, f"larger than {mebibytes(MAX_ENTRY_BYTES)}")
            continue
        try:
            text = mail_text(_QUOTED_SEPARATOR.sub(rb"\1", content))
        except InputError as error:
            yield SkippedFile(name, str(error))
        else:
            yield Document(name, (Part(NOTES, text),))


MAILBOX = FormatReader("mailbox", _claims_mailbox, _read_mailbox)


def _box_mails(file: ImportFile) -> Iterator[bytes]:
    """The bytes of each mail, truncated soon after `MAX_ENTRY_BYTES`."""
    lines: list[bytes] = []
    size, blank = 0, True
    with file.open() as stream:
        while line := stream.readline(MAX_ENTRY_BYTES):
            if blank and _SEPARATOR.match(line):
                if lines:
                    yield b"".join(lines)
                lines, size = [], 0
            elif size <= MAX_ENTRY_BYTES:
                lines.append(line)
                size += len(line)
            blank = not line.strip()
    if lines:
        yield b"".join(lines)


def mail_text(content: bytes) -> str:
    """Subject, headers and texts as Markdown.

    Raises:
        InputError: it is damaged, or has no readable text.
    """
    try:
        return _mail_text(message_from_bytes(content), 0)
    except RecursionError as error:
        raise InputError("parts nested too deeply") from error
    except (LookupError, TypeError, ValueError) as error:  # from the email package, for odd headers
        raise InputError("damaged mail") from error


def _mail_text(mail: Message, depth: int) -> str:
    subject = _header(mail, "Subject")
    headers = [(name, _header(mail, name)) for name in SHOWN_HEADERS]
    shown = [f"{name}: {value}" for name, value in headers if value and not _SAVED_BY.match(value)]
    texts = [text.strip() for text in _texts(mail, depth) if text.strip()]
    if not texts and not subject:
        raise InputError(NO_TEXT)
    heading = f"# {subject}" if subject else ""
    return "\n\n".join(filter(None, (heading, "\n".join(shown), *texts)))


def _header(mail: Message, name: str) -> str:
    return _decoded(str(mail.get(name, "")))


def _decoded(value: str) -> str:
    """A header on one line; left encoded if its encoding is invalid."""
    with suppress(MessageError, LookupError, ValueError):
        value = str(make_header(decode_header(value)))
    return " ".join(value.encode("utf-8", "replace").decode().split())


def _texts(part: Message, depth: int) -> Iterator[str]:
    """The texts in a part, in order."""
    if depth > MAX_DEPTH:
        raise InputError("parts nested too deeply")
    payload = part.get_payload()
    children = [one for one in payload if isinstance(one, Message)] if part.is_multipart() else []
    kind = part.get_content_type()
    if kind == "message/rfc822":
        yield from (_mail_text(child, depth + 1) for child in children)
    elif kind == "multipart/alternative":
        plain_first = sorted(children, key=lambda one: one.get_content_type() != PLAIN)
        texts = ("\n\n".join(_texts(child, depth + 1)) for child in plain_first)
        yield next(filter(str.strip, texts), "")
    elif kind == "multipart/related":  # a page and its pictures
        yield from _texts(_root(part, children), depth + 1) if children else ()
    elif children:
        yield from chain(*(_texts(child, depth + 1) for child in children))
    else:
        yield _leaf_text(part)


def _root(part: Message, children: Sequence[Message]) -> Message:
    """The root of a multipart/related entity by its `start` or `type` parameter (RFC 2387)."""
    start, kind = str(part.get_param("start", "")), str(part.get_param("type", HTML_TYPE)).lower()
    named = (one for one in children if start and str(one.get("Content-ID", "")).strip() == start)
    typed = (one for one in children if one.get_content_type() == kind)
    return next(chain(named, typed), children[0])


def _leaf_text(part: Message) -> str:
    name = _decoded(str(part.get_filename("")))
    try:
        text = _content(part)
    except InputError as error:
        return f"Attachment {name or part.get_content_type()}: not read ({error})"
    return f"Attachment {name}:\n\n{text}" if name else text


def _content(part: Message) -> str:
    """The text of a leaf.

    Raises:
        InputError: it has no text.
    """
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    kind = part.get_content_type()
    if part.get_content_maintype() in NO_TEXTS:
        raise InputError(part.get_content_maintype())
    if kind == "application/pdf":
        return pdf_text(content)
    try:
        text = content.decode(str(part.get_content_charset("")))
    except (LookupError, ValueError):  # no charset, or a wrong one
        return html_text(content) if kind == HTML_TYPE else decode(content)[0]
    return html_text(codecs.BOM_UTF8 + text.encode()) if kind == HTML_TYPE else text
