"""A child process that extracts texts from formats whose parsers a hostile file can break.

Owns both sides: `TextExtractor`, which keeps the process, and what the process does (`python -m
app.importing.readers.text_extractor`), within limits on its memory and its time. One process serves
many files, since starting one takes a fifth of a second; if a file kills it, that costs one
document, and the next file gets a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.importing.readers.html import html_text
from app.importing.readers.pdf import pdf_text
from app.importing.source_file import (
    EXTRACT_MEMORY_BYTES,
    EXTRACT_TIMEOUT_S,
    MAX_TEXT_BYTES,
    mebibytes,
)
from datastores.errors import InputError
from engines.child_process import ChildProcess, emit, emit_error, receive_requests, run_child


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
                "app.importing.readers.text_extractor", self._timeout_s, requests=True
            )
        return self._child


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
