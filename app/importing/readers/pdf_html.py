"""PDFs and web pages: formats whose readers a hostile file can break, read in a child process.

Owns both sides: the readers, with the `TextExtractor` that keeps the process, and what the process
does (`python -m app.importing.readers.pdf_html`), within limits on its memory and its time. One
process serves many files, since starting one takes a fifth of a second; if a file kills it, that
costs one document, and the next file gets a new process. Web pages become Markdown, which is how
models write.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence

from app.child_process import ChildProcess, emit, emit_error, receive_requests, run_child
from app.importing.source_file import (
    EXTRACT_MEMORY_BYTES,
    EXTRACT_TIMEOUT_S,
    MAX_PDF_BYTES,
    MAX_TEXT_BYTES,
    FormatReader,
    Outcome,
    SourceFile,
    mebibytes,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

_HTML_START = re.compile(rb"\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)

_WRAPPED_LINE = re.compile(r"(?<=[a-z,;])\n(?=[a-z(])")
"""A line end within a sentence: where the line was full, not where the author wanted one."""

_DROPPED_ELEMENTS = (
    "script", "style", "noscript", "template", "svg", "nav", "header", "footer", "aside",
)  # fmt: skip
"""Parts of a page that are not its text."""


class TextExtractor:
    """Extracts texts in a child process. For one thread at a time."""

    def __init__(self, timeout_s: float = EXTRACT_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._child: ChildProcess | None = None

    def extract(self, form: str, content: bytes) -> str:
        """The text in `content`; `form` is pdf or html.

        Raises:
            InputError: damaged, without text, or beyond the limits of time and memory.
        """
        try:
            return str(self._running().request(form, content, self._timeout_s))
        except TimeoutError as error:
            self.close()
            raise InputError("takes too long to read") from error
        except EOFError as error:
            self.close()
            raise InputError("crashes the PDF or HTML parser") from error

    def close(self) -> None:
        """End the process; the next `extract` starts another one."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _running(self) -> ChildProcess:
        if self._child is None or not self._child.is_running():
            self.close()
            self._child = ChildProcess(
                "app.importing.readers.pdf_html", self._timeout_s, requests=True
            )
        return self._child


def make_pdf_reader(extractor: TextExtractor) -> FormatReader:
    """Reads the text of all pages."""

    def claims(file: SourceFile) -> bool:
        return file.head.startswith(b"%PDF-") or file.suffix == ".pdf"

    def read(file: SourceFile) -> Iterator[Outcome]:
        text = extractor.extract("pdf", file.read(MAX_PDF_BYTES))
        yield Document(file.name, (Part(NOTES, text),))

    return FormatReader("PDF", claims, read, MAX_PDF_BYTES)


def make_html_reader(extractor: TextExtractor) -> FormatReader:
    """Reads the main part of a web page as Markdown."""

    def claims(file: SourceFile) -> bool:
        named = file.suffix in (".html", ".htm", ".xhtml")
        return named or _HTML_START.match(file.head.removeprefix(b"\xef\xbb\xbf")) is not None

    def read(file: SourceFile) -> Iterator[Outcome]:
        text = extractor.extract("html", file.read(MAX_TEXT_BYTES))
        yield Document(file.name, (Part(NOTES, text),))

    return FormatReader("HTML", claims, read, MAX_TEXT_BYTES)


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


def html_text(content: bytes) -> str:
    """The page's main part as Markdown."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    warnings.simplefilter("ignore")
    soup = BeautifulSoup(content, "html.parser")
    for element in soup.find_all(_DROPPED_ELEMENTS):
        element.decompose()
    main = soup.find("main") or soup.find("article") or soup.body or soup
    try:
        text = str(MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(main))
    except RecursionError:
        text = main.get_text("\n", strip=True)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


FORMS: dict[str, Callable[[bytes], str]] = {"pdf": pdf_text, "html": html_text}


def answer_requests(arguments: Sequence[str]) -> None:
    """In the child: extract texts; the argument is the time that one may take, in seconds."""
    for form, content in receive_requests(float(arguments[0])):
        extract = FORMS[form]
        try:
            emit(_bounded_text(extract, content))
        except InputError as error:
            emit_error(error)
        except MemoryError:
            emit_error(InputError("needs too much memory to read"))


def _bounded_text(extract: Callable[[bytes], str], content: bytes) -> str:
    text = extract(content)
    if not text.strip():
        raise InputError("no text in it")
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MAX_TEXT_BYTES:
        raise InputError(f"more than {mebibytes(MAX_TEXT_BYTES)} of text")
    return encoded.decode()


if __name__ == "__main__":
    run_child(answer_requests, memory_bytes=EXTRACT_MEMORY_BYTES)
