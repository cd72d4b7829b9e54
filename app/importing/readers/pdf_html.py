"""Web pages: what is in them as Markdown, which is how models write, in a process of its own.

A process of its own for formats whose readers a hostile file can break: PDF and web pages.

Owns that process, its start and its death. What it does, and for how long, stands in `child`. One
serves many files, as starting one costs a fifth of a second; after a death the next file gets a new
one.

PDF: the text of its pages, in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter

from app.importing.source_file import (
    EXTRACT_TIMEOUT_S,
    MAX_PDF_BYTES,
    MAX_TEXT_BYTES,
    FormatReader,
    Outcome,
    SourceFile,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part


class TextExtractor:
    """Extracts texts in another process. For one thread at a time."""

    def __init__(self, seconds: float = EXTRACT_TIMEOUT_S) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def extract(self, form: str, content: bytes) -> str:
        """The text in `content`; `form` is pdf or html.

        Raises:
            InputError: damaged, without text, or more than this process may spend on it.
        """
        process = self._running()
        started = perf_counter()
        answer = _ask(process, form, content)
        if answer is None:
            self.close()
            slow = perf_counter() - started >= self._seconds
            raise InputError("takes too long to read" if slow else "breaks its reader")
        good, text = answer
        if not good:
            raise InputError(text)
        return text

    def close(self) -> None:
        """End the process; the next `extract` starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app.importing.readers.pdf_html_worker", str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        return self._process


def _ask(process: subprocess.Popen[bytes], form: str, content: bytes) -> tuple[bool, str] | None:
    """Whether it went well, and the text or the reason; None where the process died over it."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{form} {len(content)}\n".encode() + content)
        process.stdin.flush()
    except BrokenPipeError:
        return None
    verdict, _, length = process.stdout.readline().strip().partition(b" ")
    text = process.stdout.read(int(length or 0))
    if not length or len(text) < int(length):
        return None
    return verdict == b"text", text.decode()


def make_pdf_reader(worker: TextExtractor) -> FormatReader:
    """A reader that lets `worker` do it."""

    def read(file: SourceFile) -> Iterator[Outcome]:
        text = worker.extract("pdf", file.read(MAX_PDF_BYTES))
        yield Document(file.name, (Part(NOTES, text),))

    return FormatReader("PDF", _claims_pdf, read, MAX_PDF_BYTES)


def _claims_pdf(file: SourceFile) -> bool:
    return file.head.startswith(b"%PDF-") or file.suffix == ".pdf"


_START = re.compile(rb"\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)


def make_html_reader(worker: TextExtractor) -> FormatReader:
    """A reader that lets `worker` do it."""

    def read(file: SourceFile) -> Iterator[Outcome]:
        text = worker.extract("html", file.read(MAX_TEXT_BYTES))
        yield Document(file.name, (Part(NOTES, text),))

    return FormatReader("HTML", _claims_html, read, MAX_TEXT_BYTES)


def _claims_html(file: SourceFile) -> bool:
    named = file.suffix in (".html", ".htm", ".xhtml")
    return named or _START.match(file.head.removeprefix(b"\xef\xbb\xbf")) is not None
