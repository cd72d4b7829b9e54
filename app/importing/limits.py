"""How large things may be that are read into memory, and how long reading may take."""

from __future__ import annotations

MIB = 2**20

TEXT_BYTES = 32 * MIB
"""Largest file that is read as a whole: a long book has 5 MiB."""

DATA_BYTES = MIB
"""Largest JSON file of unknown meaning: beyond it, it is data, not something a person wrote."""

ENTRY_BYTES = 32 * MIB
"""Largest single conversation of an export; the export itself is streamed and may be any size."""

PDF_BYTES = 128 * MIB
"""Largest PDF: most of one is pictures."""

NESTING = 200
"""Deepest nesting of JSON: exports use about 10."""

ARCHIVE_MEMBERS = 100_000
"""Most members of one archive that are looked at."""

ARCHIVE_RATIO = 200
"""How many times its size an archive may unpack to; text packs to a tenth or so."""

ARCHIVE_FLOOR = 64 * MIB
"""What any archive may unpack to, however small it is."""

CHILD_SECONDS = 30.0
"""Longest a PDF or a web page may take to read."""

CHILD_BYTES = 2**31
"""Memory (address space) of the process that reads PDFs and web pages."""


def mebibytes(size: int) -> str:
    """A limit in words."""
    return f"{size // MIB} MiB"
