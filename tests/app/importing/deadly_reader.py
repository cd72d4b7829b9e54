"""The process that reads files, with a reader that does what the file's suffix says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

from app.importing import reader_process, readers
from app.importing.import_file import FormatReader, ImportFile, Outcome
from engines.child_process import run_child


def _claims(file: ImportFile) -> bool:
    return file.suffix in (".dies", ".hangs", ".fills", ".raises")


def _read(file: ImportFile) -> Iterator[Outcome]:
    if file.suffix == ".dies":
        os.abort()
    while file.suffix == ".hangs":
        pass
    if file.suffix == ".fills":
        bytearray(2 * reader_process.READER_MEMORY_BYTES)
    raise KeyError(file.name)
    yield


if __name__ == "__main__":
    known = readers.make_readers()
    deadly = FormatReader("deadly", _claims, _read)
    with (
        patch.object(reader_process, "make_readers", lambda: (deadly, *known)),
        patch.object(reader_process, "READ_TIME_S", 0.2),
    ):
        run_child(reader_process.answer_requests, memory_bytes=reader_process.READER_MEMORY_BYTES)
