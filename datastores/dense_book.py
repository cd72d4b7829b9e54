"""Keeping a dense index up to date, in memory and on disk: what is recorded, encoded, fitted.

States become searchable at once and reach the disk with `flush`. The first projection is fitted as
soon as there are enough states; until then those of this session are held. When the material has
outgrown a projection, a new generation is begun beside it: fresh states get a key in both, older
ones are encoded again by whoever asks for the `backlog`, and it serves once it lacks nothing.

Owns the order in which memory and disk follow one another. What has a contract of its own is kept
by others: which document an answer goes into (`datastores.dense_answers`), what is not yet written
(`datastores.dense_unwritten`), when a projection is due (`datastores.dense_fitting`), what other
processes did (`datastores.dense_seen`). Refuses to know threads, models and idleness: one thread at
a time, see `datastores.dense_keeper`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datastores.dense import DenseStore
from datastores.dense_answers import Answers
from datastores.dense_fitting import Fitting
from datastores.dense_memory import DenseMemory
from datastores.dense_moments import Floats
from datastores.dense_rows import Written
from datastores.dense_seen import Seen
from datastores.dense_status import Status, Wanting
from datastores.dense_unwritten import Fresh, Unwritten


class DenseBook:
    """The index of one model, kept in `store` and, for drafting, in `memory`.

    Methods raise StoreError where the disk fails; nothing is lost by that, and the next `flush`
    tries again.
    """

    def __init__(self, store: DenseStore, memory: DenseMemory) -> None:
        self._store = store
        self._memory = memory
        self._fitting = Fitting(store)
        self._seen = Seen(store)
        self._answers = Answers(store)
        self._unwritten = Unwritten()
        self._memory.load(store, self._seen.serving)

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to do."""
        return self._unwritten.ready(self._seen.generations)

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, in a chat known as `source`; see `Answers.begin`."""
        self.leave()
        said = self._answers.begin(source, tokens)
        self._memory.begin(said.document)
        self._say(said)

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer, from `position` of the document on, and the states that produced
        them, float32 [len(tokens), width]."""
        said = self._answers.observe(position, tokens)
        if said is not None:
            self._say(said)
            positions = np.arange(position, position + len(tokens), dtype=np.int64)
            self._take(Fresh(said.document, positions, states), new=True)

    def leave(self) -> None:
        """What comes next belongs to no document until the next `begin`."""
        self._answers.leave()
        self._follow()

    def add_document(self, source: str, tokens: Sequence[int]) -> None:
        """A text to be encoded; it waits in the backlog."""
        self.add_documents(source, [tokens])

    def add_documents(self, source: str, texts: Sequence[Sequence[int]], first: int = 1) -> None:
        """Texts to be encoded from position `first` on, recorded all or none."""
        documents = self._store.add_documents(source, texts, first)
        for document, tokens in zip(documents, texts, strict=True):
            self._memory.add_tokens(document, 0, tokens)

    def sources(self, prefix: str) -> set[str]:
        """What begins with `prefix`, of what documents are known by."""
        return self._store.sources(prefix)

    def reconcile(self) -> None:
        """Draft no more from what another process has deleted."""
        held = self._seen.documents()
        for document in self._memory.documents() - held:
            self._memory.forget(document)
        self._answers.retain(held)

    def backlog(self) -> list[int]:
        """Documents that lack keys in the newest generation, oldest first."""
        self.flush()
        held = self._unwritten.documents()
        return [
            document
            for document in self._store.unfinished(self._seen.newest)
            if document not in held or len(self.wanting(document).positions)
        ]

    def wanting(self, document: int) -> Wanting:
        """What a document lacks: what is neither stored nor held until the first fit."""
        self.flush()
        tokens = self._store.tokens(document)
        missing = self._store.missing(document, self._seen.newest)
        missing = np.setdiff1d(missing, self._unwritten.positions(document))
        return Wanting(document, tokens, missing[missing < len(tokens)])

    def encoded(self, document: int, positions: NDArray[np.int64], states: Floats) -> None:
        """States of the backlog. While a generation is being built they were seen before."""
        self._take(Fresh(document, positions, states), new=not self._seen.rebuilding)

    def flush(self) -> None:
        """Write what is new, all or nothing."""
        self._follow()
        self._unwritten.write(self._store, self._seen.generations)

    def refit(self) -> bool:
        """Begin a new generation if the material asks for one; see `Fitting.better`."""
        fitted = None if self._seen.rebuilding else self._fitting.better(self._seen.serving)
        if fitted is None:
            return False
        self.flush()
        self._store.generations.begin(*fitted)
        self._follow()
        return True

    def promote(self) -> bool:
        """Let the generation that is being built serve if it lacks nothing."""
        if not self._seen.rebuilding or self.backlog():
            return False
        self._store.generations.promote()
        self._seen.look()
        self._memory.load(self._store, self._seen.serving)
        return True

    def forget(self, source: str) -> None:
        """Delete the documents of `source`, without a trace."""
        self.flush()
        self._answers.forget(source)
        for document in self._store.forget(source):
            self._memory.forget(document)

    def status(self) -> Status:
        """How far the index is."""
        self.flush()
        serving = self._seen.serving
        positions, keys = self._store.counts(serving)
        rebuilt = self._store.counts(self._seen.newest)[1] if self._seen.rebuilding else None
        part = serving.explained if serving else 0.0
        return Status(self._fitting.states, positions, keys, rebuilt, part)

    def close(self) -> None:
        """Write what is left, and close the file."""
        try:
            self.flush()
            self._fitting.keep()
        finally:
            self._store.close()

    def _say(self, said: Written) -> None:
        """Make tokens known."""
        self._memory.add_tokens(*said)
        self._unwritten.say(said)

    def _take(self, fresh: Fresh, *, new: bool) -> None:
        """Make states searchable, and count them in if they are `new`."""
        self._unwritten.add(fresh)
        self._memory.add_states(*fresh)
        if new:
            self._fitting.add(fresh.states)
        if self._seen.serving is None:
            self.refit()

    def _follow(self) -> None:
        """Take notice of what was deleted, and of generations that began or ended, here or in
        another process."""
        if self._seen.deleted():
            self.reconcile()
        self._seen.look()
        if self._seen.serving and not self._memory.serves:
            # The first projection is there: what is held can be found.
            self._memory.serve(self._seen.serving.projection)
            for fresh in self._unwritten.states:
                self._memory.add_states(*fresh)
