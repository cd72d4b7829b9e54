"""The dense index of one model, in memory and on disk: what is added, encoded, found and forgotten.

States get their keys once, when they come in: the keys are searchable at once and reach the disk
with `flush`. Until the projection is fitted,
states stay in memory and are never written to disk; if the process ends before that, they are
encoded again from the tokens when the model is idle.

The projection is fitted once, to the first `SAMPLE` states, and never again.

Owns the order in which memory and disk follow one another, and which text an answer is written
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
from datastores.dense.store import DenseStore, TextKeys, TextTokens
from datastores.tokens import common_prefix

SAMPLE = 1024
"""States the projection is fitted to, once and for good: 16 for each component.

A larger sample delays the first draft; a smaller one makes worse keys of wide states. Tokens per
step at 8 rows with the embedded model (width 256, temperature 0.7), 200 chats one after the other:

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


class TextStates(NamedTuple):
    """States float32 [n, width] that produced the tokens at `positions` [n] of one text."""

    text: int
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
    """A text, and the positions whose states are missing, ascending."""

    text: int
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
        self._sample: list[TextStates] = []
        self._answers = AnswerTexts(store)
        self._buffer = WriteBuffer()
        self._flat: tuple[tuple[frozenset[int], int], FlatKeys | None] | None = None
        memory.load(store, self._projection, cancelled)

    @property
    def unwritten(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._buffer)

    def begin(self, owner: str, tokens: Sequence[int]) -> None:
        """An answer starts after `tokens`, in a chat known as `owner`."""
        self.leave()
        new = self._answers.begin(owner, tokens)
        self._memory.begin(new.text)
        self._add_tokens(new)

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Tokens of the answer, from `position` of the text on, and the states that produced
        them, float32 [len(tokens), width]."""
        new = self._answers.observe(position, tokens)
        if new is not None:
            self._add_tokens(new)
            positions = np.arange(position, position + len(tokens), dtype=np.int64)
            self.add_states(TextStates(new.text, positions, states))

    def leave(self) -> None:
        """What comes next belongs to no text until the next `begin`."""
        self._answers.leave()
        self._refresh()

    def add_text(self, owner: str, tokens: Sequence[int]) -> None:
        """As `add_texts`, of one text."""
        self.add_texts(owner, [tokens])

    def add_texts(self, owner: str, tokens: Sequence[Sequence[int]]) -> None:
        """Texts to be encoded, recorded all or none; they join the backlog."""
        texts = self._store.add_texts(owner, tokens)
        for text, each in zip(texts, tokens, strict=True):
            self._memory.add_tokens(TextTokens(text, 0, each))

    def add_states(self, new: TextStates) -> None:
        """Make states of tokens that were added before searchable."""
        if self._projection is not None:
            self._add_keys(new, self._projection)
            return
        self._sample.append(new)
        if sum(len(held.states) for held in self._sample) >= SAMPLE:
            self._fit()

    def owners(self, prefix: str) -> set[str]:
        """The owners of texts that begin with `prefix`."""
        return self._store.owners(prefix)

    def flat_keys(self, owners: Collection[str]) -> FlatKeys | None:
        """The keys that texts of `owners` have now; None before the projection is fitted."""
        self._refresh()
        texts = frozenset(self._store.texts_of(owners))
        chosen = texts, len(self._memory)
        if self._flat is None or self._flat[0] != chosen:
            self._flat = chosen, self._memory.flat_keys(texts)
        return self._flat[1]

    def reconcile(self) -> None:
        """Draft no more from what another process has deleted."""
        deletions = self._store.deletions()
        stored = self._store.texts()
        self._deletions = deletions
        self._drop(self._memory.texts() - stored)
        self._answers.retain(stored)

    def backlog(self) -> list[int]:
        """Texts that lack keys, oldest first."""
        self.flush()
        held = {states.text for states in self._sample}
        return [
            text
            for text in self._store.incomplete()
            if text not in held or len(self.missing_keys(text).positions)
        ]

    def missing_keys(self, text: int) -> MissingKeys:
        """What a text lacks: positions without a key whose state is not held either."""
        self.flush()
        tokens = self._store.tokens(text)
        missing = self._store.missing_keys(text)
        for held in self._sample:
            if held.text == text:
                missing = np.setdiff1d(missing, held.positions)
        return MissingKeys(text, tokens, missing[missing < len(tokens)])

    def flush(self) -> None:
        """Write what is new, all or nothing."""
        self._refresh()
        self._buffer.write(self._store)

    def forget(self, owner: str) -> None:
        """Delete the texts of `owner`, without a trace."""
        self.flush()
        self._answers.forget(owner)
        self._drop(self._store.forget(owner))

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

    def _add_tokens(self, new: TextTokens) -> None:
        self._memory.add_tokens(new)
        self._buffer.add_tokens(new)

    def _add_keys(self, new: TextStates, projection: Projection) -> None:
        keys = TextKeys(new.text, new.positions, projection.encode(new.states))
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

    def _drop(self, texts: Collection[int]) -> None:
        for text in texts:
            self._memory.forget(text)
        self._sample = [held for held in self._sample if held.text not in texts]


class WriteBuffer:
    """Tokens and keys on their way to the disk; what could not be written goes on waiting.

    Attributes:
        keys: in the order in which they came.
    """

    def __init__(self) -> None:
        self.keys: list[TextKeys] = []
        self._tokens: dict[int, tuple[int, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._tokens or self.keys)

    def add_tokens(self, new: TextTokens) -> None:
        """Tokens that follow those a text has."""
        self._tokens.setdefault(new.text, (new.start, []))[1].extend(new.tokens)

    def write(self, store: DenseStore) -> None:
        """Write all of it, or nothing.

        Raises:
            StoreError: the disk failed.
        """
        if self:
            tokens = [TextTokens(text, *new) for text, new in self._tokens.items()]
            store.write(tokens, self.keys)
            self.keys, self._tokens = [], {}


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of this session with all its tokens."""

    id: int
    tokens: list[int]


class AnswerTexts:
    """The texts that answers are written into, one at a time: each chat's own, for as long as
    its text grows at the end."""

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._by_owner: dict[str, _Text] = {}
        self._current: _Text | None = None

    def begin(self, owner: str, tokens: Sequence[int]) -> TextTokens:
        """An answer starts after `tokens`; what of them its text does not have yet.

        It continues the text that was last written here for `owner`, if its tokens do; else a
        new one, in which only what that one does not have is to be encoded. Texts of earlier
        sessions are left alone: another window may be writing them.

        Raises:
            StoreError: the store cannot be read or written; nothing is recorded then.
        """
        self.leave()
        text = self._by_owner.get(owner)
        written = text.tokens if text else list(self._store.latest_tokens(owner))
        shared = common_prefix(written, tokens)
        if text is None or shared < len(written):
            text = _Text(self._store.create_text(owner, first=shared), [])
            self._by_owner[owner] = text
        return self._append(text, tokens[len(text.tokens) :])

    def observe(self, position: int, tokens: Sequence[int]) -> TextTokens | None:
        """The answer continues with `tokens`; None where none is recorded, or not at `position`."""
        text = self._current
        if text is None or position != len(text.tokens):
            return None
        return self._append(text, tokens)

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._current = None

    def forget(self, owner: str) -> None:
        """Write no further into the text of `owner`."""
        if self._by_owner.pop(owner, None) is self._current:
            self.leave()

    def retain(self, texts: Collection[int]) -> None:
        """Write no further into others than `texts`."""
        for owner, text in list(self._by_owner.items()):
            if text.id not in texts:
                self.forget(owner)

    def _append(self, text: _Text, tokens: Sequence[int]) -> TextTokens:
        self._current = text
        start = len(text.tokens)
        text.tokens.extend(tokens)
        return TextTokens(text.id, start, tokens)
