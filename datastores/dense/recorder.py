"""Keeping a dense index up to date, in memory and on disk: what is recorded, encoded, fitted.

States become searchable at once and reach the disk with `flush`. The first projection is fitted as
soon as there are enough states; until then those of this session are held. When the material has
outgrown a projection, a new generation is begun beside it: fresh states get a key in both, older
ones are encoded again by whoever asks for the `backlog`, and it serves once it lacks nothing.

Owns the order in which memory and disk follow one another. What has a contract of its own is kept
by others: which document an answer goes into (`datastores.dense.write_buffer`), what is not yet
written (`datastores.dense.write_buffer`), when a projection is due (`datastores.dense.recorder`),
what other processes did (`datastores.dense.write_buffer`). Refuses to know threads, models and
idleness: one thread at a time, see `datastores.dense.worker`.

What a dense index says of itself: how far it is, and what a document lacks.

When a dense index gets a projection: the first one soon, another when the first is outgrown.

Owns the moments of all states that were ever seen, in memory and, now and then, on disk. Refuses to
know which states have keys and what becomes of a new projection (`datastores.dense.recorder`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datastores.dense.generations import Generation
from datastores.dense.memory import DenseMemory
from datastores.dense.projection import Floats, Projection, explained, fit
from datastores.dense.rows import Written
from datastores.dense.store import DenseStore
from datastores.dense.write_buffer import AnswerDocuments, Fresh, RemoteChanges, WriteBuffer


@dataclass(frozen=True, slots=True)
class DenseStatus:
    """How far a dense index is.

    Attributes:
        states: states seen, which its moments describe.
        positions: positions that could have a key.
        keys: those that have one, and so can be found.
        rebuilt: those that have one in the generation that is being built; None where none is.
        explained: share of the variance that the serving projection kept of what it was fitted to.
    """

    states: int
    positions: int
    keys: int
    rebuilt: int | None
    explained: float


@dataclass(frozen=True, slots=True)
class Wanting:
    """A document, and the positions whose states are wanted, ascending."""

    document: int
    tokens: tuple[int, ...]
    positions: NDArray[np.int64]


FIRST = 256
"""States the first projection is fitted to: four times the components. On the embedded model its
drafts are as good as those of one fitted to 20,000 (3.09 against 3.10 tokens per call)."""
GROWTH = 4
"""A refit is considered when there are so many times the states that were last judged by…"""
OUTGROWN = 0.9
"""…and made when the old projection keeps less than this share of what a new one would keep."""
LEAST, SHARE = 256, 8
"""Moments are written again after so many states, and one more for every so many they describe:
for states of 4096 numbers they are 17 MB."""


class Fitted(NamedTuple):
    """A projection, how many states it was fitted to, and the share of their variance it keeps."""

    projection: Projection
    states: int
    explained: float


class Fitting:
    """What is known of the states of one model, and the projection that asks for.

    `add` and `keep` raise StoreError where the disk fails; what was added is counted even then.
    """

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._moments = store.moments()
        self._kept = self._moments.count
        self._judged = 0

    @property
    def states(self) -> int:
        """States seen."""
        return self._moments.count

    def add(self, states: Floats) -> None:
        """Count in float32 [n, width], each state once, whatever generations it gets a key in."""
        self._moments.add(states)
        if self.states > self._kept + max(LEAST, self._kept // SHARE):
            self.keep()

    def keep(self) -> None:
        """Write the moments if they have changed."""
        if self.states > self._kept:
            self._store.keep_moments(self._moments)
            self._kept = self.states

    def better(self, serving: Generation | None) -> Fitted | None:
        """What should take the place of `serving`; None while that will do, or is not looked at."""
        due = GROWTH * max(serving.states, self._judged) if serving else FIRST
        if self.states < due:
            return None
        projection = fit(self._moments)
        self._judged = self.states
        fitted = Fitted(projection, self.states, explained(projection, self._moments))
        if serving is None:
            return fitted
        if explained(serving.projection, self._moments) < OUTGROWN * fitted.explained:
            return fitted
        self._store.generations.confirm(serving, self.states)
        return None


class DenseRecorder:
    """The index of one model, kept in `store` and, for drafting, in `memory`.

    Methods raise StoreError where the disk fails; nothing is lost by that, and the next `flush`
    tries again.
    """

    def __init__(self, store: DenseStore, memory: DenseMemory) -> None:
        self._store = store
        self._memory = memory
        self._fitting = Fitting(store)
        self._seen = RemoteChanges(store)
        self._answers = AnswerDocuments(store)
        self._unwritten = WriteBuffer()
        self._memory.load(store, self._seen.serving)

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to do."""
        return self._unwritten.ready(self._seen.generations)

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, in a chat known as `source`."""
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

    def status(self) -> DenseStatus:
        """How far the index is."""
        self.flush()
        serving = self._seen.serving
        positions, keys = self._store.counts(serving)
        rebuilt = self._store.counts(self._seen.newest)[1] if self._seen.rebuilding else None
        part = serving.explained if serving else 0.0
        return DenseStatus(self._fitting.states, positions, keys, rebuilt, part)

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
