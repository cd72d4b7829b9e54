"""Documents into the library in small groups, each one transaction, and the report of them."""

from __future__ import annotations

from time import perf_counter

from app.importing.events import Report
from app.importing.reading import prepared
from datastores.documents import Document, Done, Put
from datastores.library import Library

GROUP_CHARACTERS = 2**22
GROUP_SECONDS = 0.5
"""A group is stored when it is this large or this old: what a kill costs."""


class Intake:
    """Takes the documents of one file after the other."""

    def __init__(self, library: Library, report: Report) -> None:
        self._library = library
        self._report = report
        self._group: list[Put | Done] = []
        self._characters = 0
        self._since = perf_counter()

    def put(self, source: str, file: str, position: int, document: Document) -> None:
        """Take a document, without its secrets."""
        clean, hits = prepared(document)
        self._group.append(Put(source, file, position, clean))
        self._characters += clean.characters
        self._report.redacted += hits
        self._store_if_due()

    def finish(self, source: str, file: str, digest: str, count: int) -> None:
        """Note that a file was read to its end, as in `Done`."""
        self._group.append(Done(source, file, digest, count))
        self._store_if_due()

    def pass_over(self, known: int) -> None:
        """Count documents of a file that did not change."""
        self._report.unchanged += known

    def store(self) -> None:
        """Store what was taken."""
        puts = sum(isinstance(entry, Put) for entry in self._group)
        stored = self._library.write(self._group)
        self._report.documents += len(stored)
        self._report.unchanged += puts - len(stored)
        self._report.characters += sum(entry.document.characters for entry in stored)
        self._group, self._characters, self._since = [], 0, perf_counter()

    def _store_if_due(self) -> None:
        late = perf_counter() - self._since >= GROUP_SECONDS
        if late or self._characters >= GROUP_CHARACTERS:
            self.store()
