"""Web pages: their main part as Markdown, which is how models write.

Owns which files are web pages, and which parts of them are text.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from app.importing.source_file import (
    MAX_TEXT_BYTES,
    NO_TEXT,
    FormatReader,
    Outcome,
    SourceFile,
)
from datastores.errors import InputError
from datastores.library.documents import NOTES, Document, Part

_HTML_START = re.compile(rb"\s*(?:<!--[^>]*-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)

_DROPPED_ELEMENTS = (
    "script", "style", "noscript", "template", "svg", "nav", "header", "footer", "aside",
)  # fmt: skip
"""Parts of a page that are not its text."""


def _claims(file: SourceFile) -> bool:
    named = file.suffix in (".html", ".htm", ".xhtml")
    return named or _HTML_START.match(file.head.removeprefix(b"\xef\xbb\xbf")) is not None


def _read(file: SourceFile) -> Iterator[Outcome]:
    text = html_text(file.read(MAX_TEXT_BYTES))
    if not text.strip():
        raise InputError(NO_TEXT)
    yield Document(file.name, (Part(NOTES, text),))


HTML = FormatReader("HTML", _claims, _read, MAX_TEXT_BYTES)


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
