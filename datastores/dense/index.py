"""The dense index of one model, in memory and on disk.

States get their keys when they arrive; keys are searchable at once and reach the disk with `flush`.
The projection is fitted once, to the first `SAMPLE` states. Until then, states stay in memory and
are never written to disk; if the process ends before that, they are encoded again from the tokens
when the model is idle.

One thread at a time may use it, see `datastores.dense.worker`.
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
from datastores.owners import belongs, each
from datastores.tokens import common_prefix

SAMPLE = 1024
"""States that the projection is fitted to, once: 16 for each component.

A larger sample delays the first draft: with the embedded model, tokens per step in the first 40
chats fall from 1.81 to 1.41 with 2,048 states (all drafters: from 2.50 to 2.47 in the first 20).
Fitting again to many states finds more of the nearest and drafts no better. Tokens per step of the
dense index alone (as in `bench dense`, 8 rows), with keys of 1,024 states, of all of them, and of
unreduced ones: 1.607, 1.598 and 1.610 on new tasks (SmolLM2-135M, 13,700 states; recall .74, .80
and 1), 1.895, 1.902 and 1.902 on reworded ones; 1.477, 1.485 and 1.485, and 2.243, 2.229 and 2.237
with Qwen2.5-Coder-1.5B (5,600). With 256 states, .5 % less with SmolLM2, and 1.5 % less with Qwen.
"""


EXCERPTS = 16
"""Number of the heaviest keys whose surroundings tell where in its texts a contributor's are."""
EXCERPT_REACH = 6, 1
"""Number of tokens before and after the one that such a key led to."""


class Contributor(NamedTuple):
    """An owner whose keys have weight.

    Attributes:
        weight: their sum.
        excerpts: the tokens around the heaviest of them.
    """

    owner: str
    weight: float
    excerpts: tuple[tuple[int, ...], ...]


class TextStates(NamedTuple):
    """States float32 [n, width] that produced the tokens at `positions` [n] of one text."""

    text: int
    positions: NDArray[np.int64]
    states: Floats


@dataclass(frozen=True, slots=True)
class DenseStatus:
    """How complete a dense index is.

    Attributes:
        positions: number of positions that need a key.
        keys: number of those that have one.
        held: number of states that wait for the projection.
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

    Methods raise StoreError if the disk fails; nothing is lost, and the next `flush` tries again.
    """

    def __init__(
        self,
        store: DenseStore,
        memory: DenseMemory,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load `memory` from `store`; if that is `cancelled`, the index only writes."""
        self._store = store
        self._memory = memory
        self._deletions = store.deletions()
        self._projection = store.projection()
        self._sample: list[TextStates] = []
        self._answers = AnswerTexts(store)
        self._buffer = WriteBuffer()
        memory.load(store, self._projection, cancelled)

    @property
    def unwritten(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._buffer)

    def begin(self, owner: str, tokens: Sequence[int], first: int = 1) -> None:
        """Start an answer after `tokens`, of which those before `first` need no keys."""
        self.leave()
        new = self._answers.begin(owner, tokens, first)
        self._memory.begin(new.text)
        self._add_tokens(new)

    def observe(self, position: int, tokens: Sequence[int], states: Floats) -> None:
        """Add tokens of the answer, from `position` of the text on, and the states that produced
        them, float32 [len(tokens), width]."""
        new = self._answers.observe(position, tokens)
        if new is not None:
            self._add_tokens(new)
            positions = np.arange(position, position + len(tokens), dtype=np.int64)
            self.add_states(TextStates(new.text, positions, states))

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._answers.leave()
        self._refresh()

    def add_text(self, owner: str, tokens: Sequence[int]) -> None:
        """Add one text, as `add_texts`."""
        self.add_texts(owner, [tokens])

    def add_texts(self, owner: str, tokens: Sequence[Sequence[int]]) -> None:
        """Add texts to the backlog of texts to encode, in one transaction."""
        texts = self._store.add_texts(owner, tokens)
        for text, ids in zip(texts, tokens, strict=True):
            self._memory.add_tokens(TextTokens(text, 0, ids))

    def add_states(self, new: TextStates) -> None:
        """Make states searchable whose tokens were added before."""
        if self._projection is not None:
            self._add_keys(new, self._projection)
            return
        self._sample.append(new)
        if sum(len(held.states) for held in self._sample) >= SAMPLE:
            self._fit()

    def owners(self, prefix: str) -> set[str]:
        """The owners of texts that begin with `prefix`; see `datastores.owners`."""
        return self._store.owners(prefix)

    def flat_keys(self, owners: Collection[str]) -> FlatKeys | None:
        """The current keys of the texts that `owners` have alone or share among themselves; None
        before the projection is fitted."""
        self._refresh()
        return self._memory.flat_keys(frozenset(self._store.texts_of(owners)))

    def contributors(
        self, offsets: NDArray[np.int64], weights: NDArray[np.float64], limit: int
    ) -> list[Contributor]:
        """The `limit` owners with the most weight, for `weights` [n] of keys at `offsets` [n].

        What was deleted meanwhile has none. A text of several owners counts for the first.
        """
        self._refresh()
        texts, places = np.unique(self._memory.texts_at(offsets), return_inverse=True)
        known = self._store.owner_of()
        owners = [each(known.get(text, ""))[0] for text in texts.tolist()]
        held = dict[str, list[int]]()
        for at in np.argsort(-weights, kind="stable").tolist():
            held.setdefault(owners[places[at]], []).append(at)
        held.pop("", None)
        totals = {owner: float(weights[rows].sum()) for owner, rows in held.items()}
        return [
            Contributor(owner, totals[owner], self._excerpts(offsets[held[owner][:EXCERPTS]]))
            for owner in sorted(totals, key=lambda owner: -totals[owner])[:limit]
        ]

    def _excerpts(self, offsets: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._memory.around(at, *EXCERPT_REACH)) for at in offsets.tolist())

    def reconcile(self) -> None:
        """Stop drafting from texts that another process has deleted."""
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
        """Positions of a text that have neither a key nor a state in memory."""
        self.flush()
        tokens = self._store.tokens(text)
        missing = self._store.missing_keys(text)
        for held in self._sample:
            if held.text == text:
                missing = np.setdiff1d(missing, held.positions)
        return MissingKeys(text, tokens, missing[missing < len(tokens)])

    def flush(self) -> None:
        """Write everything new, in one transaction."""
        self._refresh()
        self._buffer.write(self._store)

    def forget(self, owner: str) -> None:
        """Erase the texts of `owner`, those that it shares included."""
        self.flush()
        self._answers.forget(owner)
        self._drop(self._store.forget(owner))

    def status(self) -> DenseStatus:
        """Completeness of the index."""
        self.flush()
        return DenseStatus(*self._store.counts(), sum(len(held.states) for held in self._sample))

    def close(self) -> None:
        """Flush, and close the file."""
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
        """Notice deletions and a new projection, of this process or another."""
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
    """Tokens and keys that are not yet written; they stay here if writing fails.

    Attributes:
        keys: in the order of arrival.
    """

    def __init__(self) -> None:
        self.keys: list[TextKeys] = []
        self._tokens: dict[int, tuple[int, list[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._tokens or self.keys)

    def add_tokens(self, new: TextTokens) -> None:
        """Add tokens that follow those a text has."""
        self._tokens.setdefault(new.text, (new.start, []))[1].extend(new.tokens)

    def write(self, store: DenseStore) -> None:
        """Write everything in one transaction.

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
    """The texts that answers are written into, one at a time: each chat has its own, as long as its
    text only grows at the end."""

    def __init__(self, store: DenseStore) -> None:
        self._store = store
        self._by_owner: dict[str, _Text] = {}
        self._current: _Text | None = None

    def begin(self, owner: str, tokens: Sequence[int], first: int = 1) -> TextTokens:
        """Start an answer after `tokens`; returns those that its text does not have yet.

        The text last written here for `owner` is continued if it is a prefix of `tokens`. Otherwise
        a new one starts, in which only the tokens after the common prefix need keys, and none
        before `first`. Texts of earlier sessions are not continued, since another window may be
        writing them.

        Raises:
            StoreError: the store cannot be read or written; nothing is recorded.
        """
        self.leave()
        text = self._by_owner.get(owner)
        written = text.tokens if text else list(self._store.latest_tokens(owner))
        shared = common_prefix(written, tokens)
        if text is None or shared < len(written):
            text = _Text(self._store.create_text(owner, max(first, shared)), [])
            self._by_owner[owner] = text
        return self._append(text, tokens[len(text.tokens) :])

    def observe(self, position: int, tokens: Sequence[int]) -> TextTokens | None:
        """Continue the answer with `tokens`; None if there is none, or it is not at `position`."""
        text = self._current
        if text is None or position != len(text.tokens):
            return None
        return self._append(text, tokens)

    def leave(self) -> None:
        """Record nothing until the next `begin`."""
        self._current = None

    def forget(self, owner: str) -> None:
        """Stop writing into the texts of `owner`, those that it shares included."""
        for recorded in [one for one in self._by_owner if belongs(one, owner)]:
            if self._by_owner.pop(recorded) is self._current:
                self.leave()

    def retain(self, texts: Collection[int]) -> None:
        """Stop writing into texts other than `texts`."""
        for owner, text in list(self._by_owner.items()):
            if text.id not in texts:
                self.forget(owner)

    def _append(self, text: _Text, tokens: Sequence[int]) -> TextTokens:
        self._current = text
        start = len(text.tokens)
        text.tokens.extend(tokens)
        return TextTokens(text.id, start, tokens)
