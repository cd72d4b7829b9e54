"""The dense index of one model, in memory and on disk: what is added, encoded, found and forgotten.

States get their keys once, when they come in: the keys are searchable at once and reach the disk
with `flush`. Until the projection is fitted,
states stay in memory and are never written to disk; if the process ends before that, they are
encoded again from the tokens when the model is idle.

The projection is fitted once, to the first `SAMPLE` states, and never again.

Owns the order in which memory and disk follow one another, and which document an answer is written
into. Refuses to know threads, models and idleness: one thread at a time, see
`datastores.dense.worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.flat_keys import FlatKeys
from datastores.dense.memory import DenseMemory
from datastores.dense.projection import Floats, Projection, fit
from datastores.dense.store import DenseStore, DocumentKeys, DocumentTokens
from datastores.tokens import common_prefix

SAMPLE = 1024
"""States the projection is fitted to, once and for good: 16 for each component.

A larger sample delays the first draft; a smaller one makes worse keys of wide states. Tokens per
call at 8 rows with the embedded model (width 256, temperature 0.7), 200 chats one after the other:

    states sampled                            256    512   1024   2048   4096
    this drafter alone, chats 1 to 40        2.22   2.08   1.81   1.41   1.00
    this drafter alone, chats 101 to 200     3.47   3.48   3.48   3.48   3.48
    all drafters, chats 1 to 20              2.53   2.53   2.50   2.47
    all drafters, chats 21 to 60             2.91   2.89   2.91   2.90

Of synthetic states of 4,096 numbers, whose variances fall as 1/n or 1/n^1.5, so many of the 4
nearest keys are of the right cluster (16,384 states sampled: .776, .578):

    1/n                                      .739   .760   .769   .771   .775
    1/n^1.5                                  .436   .492   .527   .553   .565

So 1,024 cost 1 % of the first 20 short chats: an ordinary model says that much in three answers, or
encodes it in seconds of idleness.
"""


class DocumentStates(NamedTuple):
    """States float32 [n, width] that produced the tokens at `positions` [n] of one document."""

    document: int
    positions: NDArray[np.int64]
    states: Floats


@dataclass(frozen=True, slots=True)
class DenseStatus:
    """How complete a dense index is.

    Attributes:
        positions: positions that need a key.
        keys: those that have one, and so can be found.
        held: states that wait for the projection.
    """

    positions: int
    keys: int
    held: int


@dataclass(frozen=True, slots=True)
class MissingKeys:
    """A document, and the positions whose states are missing, ascending."""

    document: int
    tokens: tuple[int, ...]
    positions: NDArray[np.int64]


class DenseIndex:
    """The index of one model, stored in `store` and searched in `memory`.

    Methods raise StoreError where the disk fails; nothing is lost by that, and the next `flush`
    tries again.
    """

    def __init__(
        self,
        store: DenseStore,
        memory: DenseMemory,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load `memory` from `store`, unless that is `cancelled`: then the index only writes."""
        self._store = store
        self._memory = memory
        self._deletions = store.deletions()
        self._projection = store.projection()
        self._sample: list[DocumentStates] = []
        self._answers = AnswerDocuments(store)
        self._buffer = WriteBuffer()
        self._flat: tuple[tuple[frozenset[int], int], FlatKeys | None] | None = None
        memory.load(store, self._projection, cancelled)

    @property
    def unwritten(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._buffer)

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, in a chat known as `source`."""
        self.leave()
        new = self._answers.begin(source, tokens)
        self._memory.begin(new.document)
        self._add_tokens(new)

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer, from `position` of the document on, and the states that produced
        them, float32 [len(tokens), width]."""
        new = self._answers.observe(position, tokens)
        if new is not None:
            self._add_tokens(new)
            positions = np.arange(position, position + len(tokens), dtype=np.int64)
            self.add_states(DocumentStates(new.document, positions, states))

    def leave(self) -> None:
        """What comes next belongs to no document until the next `begin`."""
        self._answers.leave()
        self._refresh()

    def add_document(self, source: str, tokens: Sequence[int]) -> None:
        """As `add_documents`, of one text."""
        self.add_documents(source, [tokens])

    def add_documents(self, source: str, texts: Sequence[Sequence[int]]) -> None:
        """Texts to be encoded, recorded all or none; they join the backlog."""
        documents = self._store.add_documents(source, texts)
        for document, tokens in zip(documents, texts, strict=True):
            self._memory.add_tokens(DocumentTokens(document, 0, tokens))

    def add_states(self, new: DocumentStates) -> None:
        """Make states of tokens that were added before searchable."""
        if self._projection is not None:
            self._add_keys(new, self._projection)
            return
        self._sample.append(new)
        if sum(len(held.states) for held in self._sample) >= SAMPLE:
            self._fit()

    def sources(self, prefix: str) -> set[str]:
        """The sources of documents that begin with `prefix`."""
        return self._store.sources(prefix)

    def flat_keys(self, sources: Collection[str]) -> FlatKeys | None:
        """The keys that documents of `sources` have now; None before the projection is fitted."""
        self._refresh()
        documents = frozenset(self._store.documents_of(sources))
        chosen = documents, len(self._memory)
        if self._flat is None or self._flat[0] != chosen:
            self._flat = chosen, self._memory.flat_keys(documents)
        return self._flat[1]

    def reconcile(self) -> None:
        """Draft no more from what another process has deleted."""
        deletions = self._store.deletions()
        stored = self._store.documents()
        self._deletions = deletions
        self._drop(self._memory.documents() - stored)
        self._answers.retain(stored)

    def backlog(self) -> list[int]:
        """Documents that lack keys, oldest first."""
        self.flush()
        held = {states.document for states in self._sample}
        return [
            document
            for document in self._store.incomplete()
            if document not in held or len(self.missing_keys(document).positions)
        ]

    def missing_keys(self, document: int) -> MissingKeys:
        """What a document lacks: positions without a key whose state is not held either."""
        self.flush()
        tokens = self._store.tokens(document)
        missing = self._store.missing_keys(document)
        for held in self._sample:
            if held.document == document:
                missing = np.setdiff1d(missing, held.positions)
        return MissingKeys(document, tokens, missing[missing < len(tokens)])

    def flush(self) -> None:
        """Write what is new, all or nothing."""
        self._refresh()
        self._buffer.write(self._store)

    def forget(self, source: str) -> None:
        """Delete the documents of `source`, without a trace."""
        self.flush()
        self._answers.forget(source)
        self._drop(self._store.forget(source))

    def status(self) -> DenseStatus:
        """How complete the index is."""
        self.flush()
        return DenseStatus(*self._store.counts(), sum(len(held.states) for held in self._sample))

    def close(self) -> None:
        """Write what is left, and close the file."""
        try:
            self.flush()
        finally:
            self._store.close()

    def _add_tokens(self, new: DocumentTokens) -> None:
        self._memory.add_tokens(new)
        self._buffer.add_tokens(new)

    def _add_keys(self, new: DocumentStates, projection: Projection) -> None:
        keys = DocumentKeys(new.document, new.positions, projection.encode(new.states))
        self._memory.add_keys(keys)
        self._buffer.keys.append(keys)

    def _fit(self) -> None:
        states = np.concatenate([held.states for held in self._sample])
        self._store.keep_projection(fit(states), len(states))
        self._refresh()

    def _refresh(self) -> None:
        """Notice what was deleted, and a projection that was fitted, here or in another process."""
        if self._store.deletions() != self._deletions:
            self.reconcile()
        if self._projection is None:
            self._projection = self._store.projection()
            if self._projection is not None:
                self._memory.serve(self._projection)
                sample, self._sample = self._sample, []
                for held in sample:
                    self._add_keys(held, self._projection)

    def _drop(self, documents: Collection[int]) -> None:
        for document in documents:
            self._memory.forget(document)
        self._sample = [held for held in self._sample if held.document not in documents]


class WriteBuffer:
    """Tokens and keys on their way to the disk; what could not be written goes on waiting.

    Attributes:
        keys: in the order in which they came.
    """

    def __init__(self) -> None:
        self.keys: list[DocumentKeys] = []
        self._tokens: dict[int, tuple[int, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._tokens or self.keys)

    def add_tokens(self, new: DocumentTokens) -> None:
        """Tokens that follow those a document has."""
        self._tokens.setdefault(new.document, (new.start, []))[1].extend(new.tokens)

    def write(self, store: DenseStore) -> None:
        """Write all of it, or nothing.

        Raises:
            StoreError: the disk failed.
        """
        if self:
            tokens = [DocumentTokens(document, *new) for document, new in self._tokens.items()]
            store.write(tokens, self.keys)
            self.keys, self._tokens = [], {}


@dataclass(frozen=True, slots=True)
class _Document:
    """A document of this session with all its tokens."""

    id: int
    tokens: list[int]


class AnswerDocuments:
    """The documents that answers are written into, one at a time: each chat's own, for as long as
    its text grows at the end."""

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._by_source: dict[str, _Document] = {}
        self._current: _Document | None = None

    def begin(self, source: str, tokens: Sequence[int]) -> DocumentTokens:
        """An answer starts after `tokens`; what of them its document does not have yet.

        It continues the document that was last written here for `source`, if its tokens do; else a
        new one, in which only what that one does not have is to be encoded. Documents of earlier
        sessions are left alone: another window may be writing them.

        Raises:
            StoreError: the store cannot be read or written; nothing is recorded then.
        """
        self.leave()
        document = self._by_source.get(source)
        written = document.tokens if document else list(self._store.latest_tokens(source))
        shared = common_prefix(written, tokens)
        if document is None or shared < len(written):
            document = _Document(self._store.create_document(source, first=shared), [])
            self._by_source[source] = document
        return self._append(document, tokens[len(document.tokens) :])

    def observe(self, position: int, tokens: Sequence[int]) -> DocumentTokens | None:
        """The answer continues with `tokens`; None where none is recorded, or not at `position`."""
        document = self._current
        if document is None or position != len(document.tokens):
            return None
        return self._append(document, tokens)

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._current = None

    def forget(self, source: str) -> None:
        """Write no further into the document of `source`."""
        if self._by_source.pop(source, None) is self._current:
            self.leave()

    def retain(self, documents: Collection[int]) -> None:
        """Write no further into others than `documents`."""
        for source, document in list(self._by_source.items()):
            if document.id not in documents:
                self.forget(source)

    def _append(self, document: _Document, tokens: Sequence[int]) -> DocumentTokens:
        self._current = document
        start = len(document.tokens)
        document.tokens.extend(tokens)
        return DocumentTokens(document.id, start, tokens)
