"""Web pages: what is in them as Markdown, which is how models write, in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.importing.limits import TEXT_BYTES
from app.importing.material import Material, Outcome, Reader
from app.importing.readers.worker import Worker
from datastores.documents import NOTES, Document, Part

_START = re.compile(rb"\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)


def make_reader(worker: Worker) -> Reader:
    """A reader that lets `worker` do it."""

    def read(material: Material) -> Iterator[Outcome]:
        text = worker.extract("html", material.read(TEXT_BYTES))
        yield Document(material.name, (Part(NOTES, text),))

    return Reader("HTML", _claims, read, TEXT_BYTES)


def _claims(material: Material) -> bool:
    named = material.suffix in (".html", ".htm", ".xhtml")
    return named or _START.match(material.head.removeprefix(b"\xef\xbb\xbf")) is not None
