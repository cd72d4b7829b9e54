"""Which document of a dense index an answer goes into: each chat's own, for as long as its text
grows at the end.

Owns that, and what is said in the documents of this session. Refuses to know when it reaches the
disk, and what can be found of it (`datastores.dense.recorder`).

What was last seen of a dense index that other processes change too.

They delete documents, and begin and end generations. Owns what this process takes for the present
state, and how it finds out, at the cost of a short statement, that it no longer is. Refuses to know
what follows from that (`datastores.dense.recorder`).

What a dense index has taken in and not yet written: tokens, and states without a key on disk.

States wait for a projection if there is none yet, since no raw state ever reaches the disk. Owns
what waits; writing it is all or nothing, and what could not be written goes on waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.generations import Generation
from datastores.dense.projection import Floats
from datastores.dense.rows import Encoded, Written
from datastores.dense.store import DenseStore
from datastores.tokens import common_prefix


class RemoteChanges:
    """Generations and documents as far as noticed. Methods raise StoreError where the disk fails.

    Attributes:
        generations: the one that serves, then the one that is being built, as far as they exist.
    """

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._deletions = store.deletions()
        self.generations = store.generations.all()

    @property
    def serving(self) -> Generation | None:
        """Whose keys are searched; None before the first projection."""
        return self.generations[0] if self.generations else None

    @property
    def newest(self) -> Generation | None:
        """Which lacks keys first: the one that is being built, else the one that serves."""
        return self.generations[-1] if self.generations else None

    @property
    def rebuilding(self) -> bool:
        """Whether one is being built beside the one that serves."""
        return len(self.generations) > 1

    def look(self) -> None:
        """Notice generations that were begun or ended, here or elsewhere."""
        if self._store.generations.ids() != [generation.id for generation in self.generations]:
            self.generations = self._store.generations.all()

    def deleted(self) -> bool:
        """Whether documents were deleted, here or elsewhere, since `documents` was last asked."""
        return self._store.deletions() != self._deletions

    def documents(self) -> set[int]:
        """The documents there are now."""
        deletions = self._store.deletions()
        documents = self._store.documents()
        self._deletions = deletions
        return documents


_NONE = np.empty(0, np.int64)


class Fresh(NamedTuple):
    """States float32 [n, width] that produced the tokens at `positions` [n] of one document."""

    document: int
    positions: NDArray[np.int64]
    states: Floats


class WriteBuffer:
    """Tokens and states on their way to the disk.

    Attributes:
        states: in the order they came; to be read only.
    """

    def __init__(self) -> None:
        self.states: list[Fresh] = []
        self._tokens: dict[int, tuple[int, list[int]]] = {}

    def say(self, said: Written) -> None:
        """Tokens that follow those a document has."""
        self._tokens.setdefault(said.document, (said.start, []))[1].extend(said.tokens)

    def add(self, fresh: Fresh) -> None:
        """States that want a key in every generation."""
        self.states.append(fresh)

    def documents(self) -> set[int]:
        """The documents whose states wait."""
        return {fresh.document for fresh in self.states}

    def positions(self, document: int) -> NDArray[np.int64]:
        """Positions of a document whose states wait."""
        held = [fresh.positions for fresh in self.states if fresh.document == document]
        return np.concatenate([_NONE, *held])

    def ready(self, generations: Sequence[Generation]) -> bool:
        """Whether there is anything to `write`."""
        return bool(self._tokens or (self.states and generations))

    def write(self, store: DenseStore, generations: Sequence[Generation]) -> None:
        """Write tokens, and a key of every state for each generation; states wait where there is
        none.

        Raises:
            StoreError: the disk failed.
        """
        tokens = [Written(document, *said) for document, said in self._tokens.items()]
        keys = [
            Encoded(
                fresh.document,
                generation.id,
                fresh.positions,
                generation.projection.encode(fresh.states),
            )
            for generation in generations
            for fresh in self.states
        ]
        if tokens or keys:
            store.write(tokens, keys)
        self._tokens = {}
        if generations:
            self.states = []


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of this session, and all that is said in it."""

    id: int
    tokens: list[int]


class AnswerDocuments:
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
