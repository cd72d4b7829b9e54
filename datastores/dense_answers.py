"""Which document of a dense index an answer goes into: each chat's own, for as long as its text
grows at the end.

Owns that, and what is said in the documents of this session. Refuses to know when it reaches the
disk, and what can be found of it (`datastores.dense_book`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from datastores.dense import DenseStore
from datastores.dense_rows import Written
from datastores.tokens import common_prefix


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of this session, and all that is said in it."""

    id: int
    tokens: list[int]


class Answers:
    """The documents that answers are written into, one at a time."""

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._by_source: dict[str, _Document] = {}
        self._present: _Document | None = None

    def begin(self, source: str, tokens: Sequence[int]) -> Written:
        """An answer starts after `tokens`; what of them its document has not yet.

        It goes on in the document that was last written here for `source`, if its tokens do; else
        in a new one, in which only what that one has not is to be encoded. Documents of earlier
        sessions are left alone: another window may be writing them.

        Raises:
            StoreError: the store cannot be read or written; nothing is recorded then.
        """
        self.leave()
        document = self._by_source.get(source)
        said = document.tokens if document else self._store.latest(source)
        shared = common_prefix(said, tokens)
        if document is None or shared < len(said):
            document = _Document(self._store.create_document(source, first=shared), [])
            self._by_source[source] = document
        return self._append(document, tokens[len(document.tokens) :])

    def observe(self, position: int, tokens: Sequence[int]) -> Written | None:
        """The answer goes on with `tokens`; None where none is recorded, or not from `position`."""
        document = self._present
        if document is None or position != len(document.tokens):
            return None
        return self._append(document, tokens)

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._present = None

    def forget(self, source: str) -> None:
        """Write no further into the document of `source`."""
        document = self._by_source.pop(source, None)
        if document is self._present:
            self.leave()

    def retain(self, documents: Collection[int]) -> None:
        """Write no further into others than `documents`."""
        for source, document in list(self._by_source.items()):
            if document.id not in documents:
                self.forget(source)

    def _append(self, document: _Document, tokens: Sequence[int]) -> Written:
        self._present = document
        start = len(document.tokens)
        document.tokens.extend(tokens)
        return Written(document.id, start, tokens)
