"""The process that reads PDFs and web pages: `python -m app.importing.readers.child`.

Owns the libraries that do it, and the limits on its own memory and time. A request on standard
input is a line `FORM LENGTH` and that many bytes, an answer a line `text LENGTH` or `flaw LENGTH`
and as much UTF-8. It ends with its input, so it outlives whoever started it by at most one file.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import BinaryIO

from app.importing.source_file import EXTRACT_MEMORY_BYTES, MAX_TEXT_BYTES, mebibytes
from datastores.errors import InputError

_WRAPPED = re.compile(r"(?<=[a-z,;])\n(?=[a-z(])")
"""A line end within a sentence: where the page was full, not where the author wanted one."""

_DROPPED = ("script", "style", "noscript", "template", "svg", "nav", "header", "footer", "aside")
"""Parts of a page that are not what it says."""


def pdf(content: bytes) -> str:
    """The text of all pages."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
        pages = [page.get_textpage().get_text_range() for page in document]
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise InputError("encrypted PDF" if locked else "damaged or truncated PDF") from error
    # U+FFFE and U+0002 stand where a word was hyphenated at the end of a line.
    text = re.sub("[\ufffe\x02](?:\r?\n)?", "", "\n\n".join(pages))
    return _WRAPPED.sub(" ", text.replace("\r\n", "\n").replace("\0", ""))


def html(content: bytes) -> str:
    """The page's main part as Markdown."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    warnings.simplefilter("ignore")
    soup = BeautifulSoup(content, "html.parser")
    for element in soup.find_all(_DROPPED):
        element.decompose()
    main = soup.find("main") or soup.find("article") or soup.body or soup
    try:
        text = str(MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(main))
    except RecursionError:
        text = main.get_text("\n", strip=True)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


FORMS: dict[str, Callable[[bytes], str]] = {"pdf": pdf, "html": html}


def main() -> None:
    """Answer requests until standard input ends, or one takes longer than the argument allows."""
    seconds = float(sys.argv[1])
    requests, answers = sys.stdin.buffer, _claim_output()
    _limit_memory()
    while header := requests.readline():
        form, length = header.split()
        content = requests.read(int(length))
        # Ends the process from a thread of its own, whatever a library is busy with.
        faulthandler.dump_traceback_later(seconds, exit=True)
        verdict, text = _answer(FORMS[form.decode()], content)
        faulthandler.cancel_dump_traceback_later()
        answers.write(f"{verdict} {len(text)}\n".encode() + text)
        answers.flush()


def _answer(extract: Callable[[bytes], str], content: bytes) -> tuple[str, bytes]:
    try:
        text = extract(content)
        if not text.strip():
            raise InputError("no text in it")
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > MAX_TEXT_BYTES:
            raise InputError(f"more than {mebibytes(MAX_TEXT_BYTES)} of text")
    except InputError as error:
        return "flaw", str(error).encode()
    except MemoryError:
        return "flaw", b"needs too much memory to read"
    return "text", encoded


def _claim_output() -> BinaryIO:
    """Keep standard output for the answers: what libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return answers


def _limit_memory() -> None:
    """Where the system can (not on Windows): an allocation beyond the limit fails."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (EXTRACT_MEMORY_BYTES, EXTRACT_MEMORY_BYTES))


if __name__ == "__main__":
    main()
