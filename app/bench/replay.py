"""How much drafting would help a person: their chats, replayed without a model.

What lossless decoding accepts of drafts that depend on tokens alone is decided by the answer, so
replaying a chat gives the tokens per call it would have had (`engines.replay`). Chats are replayed
in order; each becomes history for those after it. With what passes cost on this machine that gives
an estimate of the speed-up, at the best draft length for each drafter.

Two things cannot be known without the model: what the dense index and the student would draft, and
the scores that token recycling learns from. For the latter what followed each token in the chat
stands in, so its figure is too low rather than too high.

Owns the estimate. Refuses to know where chats come from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from app.bench.conversations import Conversation
from app.tokenising import pieces_of
from datastores.crest import CrestStore
from datastores.crest_document import Document
from datastores.crest_reader import CrestReader
from datastores.records import ASSISTANT, Message
from engines.drafters.crest import Crest
from engines.drafters.prompt import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.recycle import TokenRecycling
from engines.replay import Combined, Recorded, Tally, replay
from engines.sources import CHATS
from engines.target import Vocabulary

BUDGETS = (1, 2, 3, 4, 5, 7, 9, 11, 15, 23, 31)
"""Draft lengths that are tried: with the root, the widths that costs are known for."""
ALL = "all"
CREST_BYTES = 256 * 2**20

Tallies = Mapping[int, Tally]
"""What one drafter reached, by budget."""


@dataclass(slots=True)
class Replayed:
    """What one drafter reached in every chat, and the seconds of each of its proposals."""

    chats: list[Tallies] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def total(self) -> Tallies:
        """All chats together."""
        return {budget: _sum([chat[budget] for chat in self.chats]) for budget in BUDGETS}

    def speedup(self, tally: Tally, table: Sequence[float]) -> float:
        """Seconds of plain decoding ÷ seconds with `tally`'s calls, the drafter's own included.

        Args:
            table: seconds of a pass by its number of rows, from 1 on.
        """
        if not tally.calls:
            return 1.0
        rows = np.interp(1.0 + tally.drafted_per_call, range(1, len(table)), table[1:])
        return tally.tokens_per_call * table[1] / (float(rows) + fmean(self.seconds))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A drafter at its best draft length: `budget` tokens at a time, 0 where none pays.

    `speedup` is against plain decoding, the drafter's own time included.
    """

    budget: int
    speedup: float


def recordings(
    messages: Sequence[Message], said: Mapping[int, list[int]], context: int
) -> list[Recorded]:
    """Every answer among `messages`, with what stood before it.

    A template's few tokens are left out, and what is further back than `context` tokens is not
    seen, as in a chat.

    Args:
        said: the token ids of each message.
    """
    parents = {message.id: message.parent for message in messages}
    answers = []
    for message in messages:
        if message.role == ASSISTANT and len(said[message.id]) > 1:
            before: list[int] = []
            at = message.parent
            while at is not None and len(before) < context:
                before = said[at] + before
                at = parents[at]
            answers.append(Recorded(tuple(before[-context:]), tuple(said[message.id])))
    return answers


def tokens_of(message: Message, vocabulary: Vocabulary) -> list[int]:
    """The token ids of a message; an answer ends with the token that ends it.

    Stored ids are used where this tokenizer made them.
    """
    if message.tokens and message.tokenizer == vocabulary.fingerprint:
        return list(message.tokens)
    pieces = map(vocabulary.encode, pieces_of(message.content))
    ids = [token for piece in pieces for token in piece]
    return ids + sorted(vocabulary.stops)[:1] if message.role == ASSISTANT else ids


class Replay:
    """Replays chats, one after another, with each drafter alone and with all of them."""

    def __init__(self, vocabulary: Vocabulary, context: int, past: Past) -> None:
        """Replay with `vocabulary`; `past` takes the chats as they become history."""
        self.drafters = {drafter.name: Replayed() for drafter in past.drafters()}
        self.drafters[ALL] = Replayed()
        self._alone = past.drafters()
        self._together = Combined(past.drafters())
        self._vocabulary = vocabulary
        self._context = context
        self._past = past

    def remember(self, conversations: Sequence[Conversation]) -> None:
        """Chats that are history from the start."""
        for conversation in conversations:
            self._past.note(self._said(conversation).values())
        self._past.settle()

    def run(self, conversation: Conversation) -> int:
        """Replay one chat, which then is history; returns the tokens of its answers."""
        said = self._said(conversation)
        answers = recordings(conversation.messages, said, self._context)
        for drafter in (*self._alone, self._together):
            tallies, seconds = replay(drafter, answers, BUDGETS)
            self.drafters[drafter.name].chats.append(tallies)
            self.drafters[drafter.name].seconds += seconds
        self._past.note(said.values())
        self._past.update()
        return sum(len(answer.answer) for answer in answers)

    def _said(self, conversation: Conversation) -> dict[int, list[int]]:
        return {
            message.id: tokens_of(message, self._vocabulary) for message in conversation.messages
        }


class Past:
    """The chats replayed so far, as drafters know them: a CREST of their own."""

    def __init__(self, store: CrestStore, reader: CrestReader) -> None:
        self._store = store
        self._reader = reader
        self._documents: list[Document] = []
        self._new: list[Document] = []

    def drafters(self) -> list[Drafter]:
        """Fresh drafters of every kind that can be replayed."""
        return [PromptLookup(), TokenRecycling(), Crest(self._reader)]

    def note(self, texts: Iterable[Sequence[int]]) -> None:
        """Token ids of messages that were said; drafted from after `update` or `settle`."""
        for text in texts:
            ids = np.array(text, dtype=np.uint32)
            number = len(self._documents) + len(self._new)
            identity = hashlib.sha256(number.to_bytes(8, "little")).digest()
            self._new.append(Document(identity, ids, CHATS.bit_length() - 1))

    def update(self) -> None:
        """Take in what was noted, which is little."""
        if not self._store.update(self._new):
            self.settle()
        self._documents += self._new
        self._new = []

    def settle(self) -> None:
        """Take in what was noted, however much it is."""
        self._documents += self._new
        self._new = []
        self._store.rebuild(self._documents)


@contextmanager
def past() -> Iterator[Past]:
    """An empty past, on the disk until the end of the block."""
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        path = Path(folder) / "crest.db"
        with closing(CrestStore.open(path, CREST_BYTES)) as store, closing(CrestReader(path)) as it:
            yield Past(store, it)


def estimate(replayed: Replayed, table: Sequence[float]) -> Estimate:
    """The draft length that pays most; `table` is as for `Replayed.speedup`."""
    speedups = {
        budget: replayed.speedup(tally, table) for budget, tally in replayed.total().items()
    }
    best = max(speedups, key=lambda budget: speedups[budget])
    return Estimate(best, speedups[best]) if speedups[best] > 1.0 else Estimate(0, 1.0)


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        sum(tally.calls for tally in tallies),
        sum(tally.tokens for tally in tallies),
        sum(tally.drafted for tally in tallies),
        [rate for tally in tallies for rate in tally.rates],
    )
