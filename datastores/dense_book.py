"""Keeping a dense index up to date, in memory and on disk: what is recorded, encoded, fitted.

States become searchable at once and reach the disk with `flush`. The first projection is fitted as
soon as there are `FIRST` states; until then those of this session are held, since no raw state ever
reaches the disk. When the material has outgrown a projection, a new generation is begun beside it:
fresh states get a key in both, older ones are encoded again by whoever asks for the `backlog`, and
it serves once it lacks nothing.

Owns what is not yet written, and generations' coming and going. Refuses to know threads, models
and idleness: one thread at a time, see `datastores.dense_keeper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastores.dense import DenseStore
from datastores.dense_codec import explained, fit
from datastores.dense_generations import Generation
from datastores.dense_memory import DenseMemory
from datastores.dense_moments import Floats
from datastores.dense_rows import Encoded, Written
from datastores.dense_status import Status, Wanting

FIRST = 256
"""States the first projection is fitted to: four times the components. On the embedded model its
drafts are as good as those of one fitted to 20,000 (3.09 against 3.10 tokens per call)."""
GROWTH = 4
"""A refit is considered when there are so many times the states of the last fit…"""
OUTGROWN = 0.9
"""…and made when the old projection keeps less than this share of what a new one would keep."""
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Fresh:
    """States float32 [n, width] of positions of one document, not yet written."""

    document: int
    positions: NDArray[np.int64]
    states: Floats
    new: bool


class DenseBook:
    """The index of one model, kept in `store` and, for drafting, in `memory`.

    Methods raise StoreError where the disk fails; nothing is lost by that, and the next `flush`
    tries again.
    """

    def __init__(self, store: DenseStore, memory: DenseMemory) -> None:
        self._store = store
        self._memory = memory
        self._moments = store.moments()
        self._kept = self._judged = self._moments.count
        self._documents: dict[str, tuple[int, list[int]]] = {}
        self._document = 0
        self._said: list[int] = []
        self._unwritten: dict[int, tuple[int, list[int]]] = {}
        self._fresh: list[_Fresh] = []
        self._generations: list[Generation] = []
        self._deletions = store.deletions()
        self._reload()

    @property
    def dirty(self) -> bool:
        """Whether `flush` has something to do."""
        held = self._fresh and self._generations
        return bool(self._unwritten or held)

    def begin(self, source: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`.

        It goes on in the document that was last written here for `source`, if its tokens do; else
        in a new one, in which only what that one has not is to be encoded. Documents of earlier
        sessions are left alone: another window may be writing them.
        """
        self.leave()
        document, said = self._documents.get(source) or (0, self._store.latest(source))
        shared = _common(said, tokens)
        if not document or shared < len(said):
            document, said = self._store.create_document(source, first=shared), []
            self._documents[source] = document, said
        self._document, self._said = document, said
        self._memory.begin(document)
        self._extend(tokens[len(said) :])

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer, from `position` of the document on, and the states that produced
        them, float32 [len(tokens), width]."""
        if self._document and position == len(self._said):
            self._extend(tokens)
            positions = np.arange(position, position + len(tokens), dtype=np.int64)
            self._take(_Fresh(self._document, positions, states, new=True))

    def leave(self) -> None:
        """What comes next belongs to no document until the next `begin`."""
        self._document = 0
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
        held = self._store.documents()
        for document in self._memory.documents() - held:
            self._memory.forget(document)
        self._documents = {s: kept for s, kept in self._documents.items() if kept[0] in held}
        if self._document not in held:
            self._document = 0

    def backlog(self) -> list[int]:
        """Documents that lack keys in the newest generation, oldest first."""
        self.flush()
        documents = self._store.unfinished(self._newest)
        if self._generations:
            return documents
        return [document for document in documents if len(self.wanting(document).positions)]

    def wanting(self, document: int) -> Wanting:
        """What a document lacks: what is neither stored nor held until the first fit."""
        self.flush()
        tokens = self._store.tokens(document)
        held = [fresh.positions for fresh in self._fresh if fresh.document == document]
        missing = np.setdiff1d(
            self._store.missing(document, self._newest), np.concatenate([_NONE, *held])
        )
        return Wanting(document, tokens, missing[missing < len(tokens)])

    def encoded(self, document: int, positions: NDArray[np.int64], states: Floats) -> None:
        """States of the backlog."""
        rebuilding = len(self._generations) > 1
        self._take(_Fresh(document, positions, states, new=not rebuilding))

    def flush(self) -> None:
        """Write what is new, all or nothing."""
        self._follow()
        tokens = [Written(d, start, words) for d, (start, words) in self._unwritten.items()]
        keys = [
            Encoded(f.document, g.id, f.positions, g.projection.encode(f.states))
            for g in self._generations
            for f in self._fresh
        ]
        if tokens or keys:
            self._store.write(tokens, keys)
            self._unwritten = {}
        if keys:
            self._fresh = []

    def refit(self) -> bool:
        """Begin a new generation if the material has outgrown the serving projection."""
        if len(self._generations) != 1 or self._moments.count < GROWTH * self._last_fit:
            return False
        serving, candidate = self._generations[0].projection, fit(self._moments)
        self._judged = self._moments.count
        best = explained(candidate, self._moments)
        if explained(serving, self._moments) >= OUTGROWN * best:
            return False
        self.flush()
        self._store.generations.begin(candidate, self._moments.count, best)
        self._generations = self._store.generations.all()
        return True

    def promote(self) -> bool:
        """Let the generation that is being built serve if it lacks nothing."""
        if len(self._generations) < 2 or self.backlog():
            return False
        self._store.generations.promote()
        self._reload()
        return True

    def forget(self, source: str) -> None:
        """Delete the documents of `source`, without a trace."""
        self.flush()
        if self._documents.pop(source, (0,))[0] == self._document:
            self.leave()
        for document in self._store.forget(source):
            self._memory.forget(document)

    def status(self) -> Status:
        """How far the index is."""
        self.flush()
        serving = self._generations[0] if self._generations else None
        positions, keys = self._store.counts(serving)
        rebuilt = self._store.counts(self._newest)[1] if len(self._generations) > 1 else None
        part = serving.explained if serving else 0.0
        return Status(self._moments.count, positions, keys, rebuilt, part)

    def close(self) -> None:
        """Write what is left, and close the file."""
        try:
            self.flush()
            if self._moments.count > self._kept:
                self._store.keep_moments(self._moments)
        finally:
            self._store.close()

    @property
    def _newest(self) -> Generation | None:
        return self._generations[-1] if self._generations else None

    @property
    def _last_fit(self) -> int:
        return max(self._generations[0].states, self._judged)

    def _extend(self, tokens: Sequence[int]) -> None:
        """Append to the present document."""
        start = len(self._said)
        self._memory.add_tokens(self._document, start, tokens)
        self._unwritten.setdefault(self._document, (start, []))[1].extend(tokens)
        self._said.extend(tokens)

    def _take(self, fresh: _Fresh) -> None:
        """Make states searchable, and count them in."""
        self._fresh.append(fresh)
        if fresh.new:
            self._moments.add(fresh.states)
        if self._generations:
            self._memory.add_states(fresh.document, fresh.positions, fresh.states)
        elif self._moments.count >= FIRST:
            self._fit_first()
        if self._moments.count > self._kept + max(FIRST, self._kept // 8):
            self._store.keep_moments(self._moments)
            self._kept = self._moments.count

    def _fit_first(self) -> None:
        projection = fit(self._moments)
        kept = explained(projection, self._moments)
        self._store.generations.begin(projection, self._moments.count, kept)
        self._generations = self._store.generations.all()
        self._serve()

    def _serve(self) -> None:
        """The first projection is there: what is held can be found."""
        self._memory.serve(self._generations[0].projection)
        for fresh in self._fresh:
            self._memory.add_states(fresh.document, fresh.positions, fresh.states)

    def _follow(self) -> None:
        """Take notice of what another process deleted, and of generations it began or ended."""
        deletions = self._store.deletions()
        if deletions != self._deletions:
            self.reconcile()
            self._deletions = deletions
        known = [generation.id for generation in self._generations]
        if self._store.generations.ids() != known:
            self._generations = self._store.generations.all()
            if not known and self._generations:
                self._serve()

    def _reload(self) -> None:
        self._generations = self._store.generations.all()
        self._memory.load(self._store, self._generations[0] if self._generations else None)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
