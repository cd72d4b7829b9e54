"""PDF: the text of its pages, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

from app.importing.limits import PDF_BYTES
from app.importing.material import Material, Outcome, Reader
from app.importing.readers.worker import Worker
from datastores.documents import NOTES, Document, Part


def make_reader(worker: Worker) -> Reader:
    """A reader that lets `worker` do it."""

    def read(material: Material) -> Iterator[Outcome]:
        text = worker.extract("pdf", material.read(PDF_BYTES))
        yield Document(material.name, (Part(NOTES, text),))

    return Reader("PDF", _claims, read, PDF_BYTES)


def _claims(material: Material) -> bool:
    return material.head.startswith(b"%PDF-") or material.suffix == ".pdf"
