"""How much drafting would help a person: their chats, replayed without a model.

What lossless decoding accepts of drafts that depend on tokens alone is decided by the answer, so
replaying a chat gives the tokens per call it would have had
(`app.bench.baselines.recorded_replay`). Chats are replayed in order; each becomes history for those
after it. Each drafter by itself is tried at fixed draft lengths, and all of them together as the
budget would use them on this machine: with the rows that pay. With what passes cost here that gives
an estimate of the speed-up.

Two things cannot be known without the model: what the dense index and the student would draft, and
the scores that token recycling learns from. For the latter what followed each token in the chat
stands in, so its figure is too low rather than too high.

Owns the estimate. Refuses to know where chats come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from app.bench.baselines.recorded_replay import Combined, Recorded, ReplayCounts, replay
from app.bench.crest import ReplayHistory
from app.bench.workloads import PastConversation
from app.indexing.corpus_index import pieces_of
from datastores.chats.records import ASSISTANT, StoredMessage
from engines.budget.selection import choose, prune
from engines.draft_tree import DraftTree
from engines.drafters.protocol import Context, Drafter
from engines.step import Step
from engines.target import Vocabulary

BUDGETS = (1, 2, 3, 4, 5, 7, 9, 11, 15, 23, 31)
"""Draft lengths that are tried: with the root, the widths that costs are known for."""
MOST = BUDGETS[-1]
ALL = "all"

Tallies = Mapping[int, ReplayCounts]
"""What one drafter reached, by budget."""


@dataclass(slots=True)
class Replayed:
    """What one drafter reached in every chat, and the seconds of each of its proposals."""

    chats: list[Tallies] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def total(self) -> Tallies:
        """All chats together."""
        budgets = self.chats[0] if self.chats else ()
        return {budget: _sum([chat[budget] for chat in self.chats]) for budget in budgets}

    def speedup(self, tally: ReplayCounts, table: Sequence[float]) -> float:
        """Seconds of plain decoding ÷ seconds with `tally`'s calls, the drafter's own included.

        Args:
            table: seconds of a pass by its number of rows, from 1 on.
        """
        if not tally.calls:
            return 1.0
        rows = np.interp(1.0 + tally.drafted_per_call, range(1, len(table)), table[1:])
        return tally.tokens_per_call * table[1] / (float(rows) + fmean(self.seconds))

    def best(self, table: Sequence[float]) -> int:
        """The budget at which decoding is fastest; the smallest where none pays."""
        total = self.total()
        return max(total, key=lambda budget: self.speedup(total[budget], table))


class Paying:
    """All drafters together, as the budget uses them: only rows that pay are drafted.

    Attributes:
        rate: tokens per second over the long run, which a second of verification must be worth.
    """

    name = ALL
    learns_from = 0

    def __init__(self, drafters: Sequence[Drafter], table: Sequence[float]) -> None:
        self.rate = 1.0 / table[1]
        self._all = Combined(drafters)
        self._table = table

    def begin(self, context: Context) -> None:
        """A new answer starts."""
        self._all.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The rows that pay, of the `limit` most probable ones."""
        tree = self._all.propose(context, limit)
        paths = list(tree.probabilities)
        for row in range(1, len(tree)):
            paths[row] *= paths[tree.parents[row]]
        chosen, _ = choose(paths[1:], self._table, self.rate, 0.0)
        return prune(tree, range(1, chosen + 1))

    def observe(self, step: Step) -> None:
        """Learn from what came."""
        self._all.observe(step)


def recordings(
    messages: Sequence[StoredMessage], said: Mapping[int, list[int]], context: int
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
        before: list[int] = []
        at = message.parent
        while message.role == ASSISTANT and at is not None and len(before) < context:
            before = said[at] + before
            at = parents[at]
        # The first token comes out of the prompt.
        if before and len(said[message.id]) > 1:
            answers.append(Recorded(tuple(before[-context:]), tuple(said[message.id])))
    return answers


def tokens_of(message: StoredMessage, vocabulary: Vocabulary) -> list[int]:
    """The token ids of a message; an answer ends with the token that ends it.

    Stored ids are used where this tokenizer made them.
    """
    if message.tokens and message.tokenizer == vocabulary.fingerprint:
        return list(message.tokens)
    pieces = map(vocabulary.encode, pieces_of(message.content))
    ids = [token for piece in pieces for token in piece]
    return ids + sorted(vocabulary.stops)[:1] if message.role == ASSISTANT else ids


class Replay:
    """Replays chats, one after another.

    Attributes:
        drafters: what each drafter reached, by name; all of them together, too.
    """

    def __init__(
        self, vocabulary: Vocabulary, context: int, past: ReplayHistory, table: Sequence[float]
    ) -> None:
        """Replay with `vocabulary`; `past` takes the chats as they become history.

        Args:
            context: tokens that are seen before an answer.
            table: seconds of a pass by its number of rows, from 1 on.
        """
        self._alone = past.drafters()
        self._together = Paying(past.drafters(), table)
        self.drafters = {drafter.name: Replayed() for drafter in (*self._alone, self._together)}
        self._vocabulary = vocabulary
        self._context = context
        self._past = past
        self._table = table

    def remember(self, conversations: Sequence[PastConversation]) -> None:
        """Chats that are history from the start."""
        for conversation in conversations:
            self._past.note(self._said(conversation).values())
        self._past.settle()

    def run(self, conversation: PastConversation) -> int:
        """Replay one chat, which then is history; returns the tokens of its answers."""
        said = self._said(conversation)
        answers = recordings(conversation.messages, said, self._context)
        for drafter in self._alone:
            self._replay(drafter, answers, BUDGETS)
        self._replay(self._together, answers, (MOST,))
        together = self.drafters[ALL]
        gain = together.speedup(together.total()[MOST], self._table)
        self._together.rate = max(1.0, gain) / self._table[1]
        self._past.note(said.values())
        self._past.update()
        return sum(len(answer.answer) for answer in answers)

    def _replay(
        self, drafter: Drafter, answers: Sequence[Recorded], budgets: Sequence[int]
    ) -> None:
        tallies, seconds = replay(drafter, answers, budgets)
        self.drafters[drafter.name].chats.append(tallies)
        self.drafters[drafter.name].seconds += seconds

    def _said(self, conversation: PastConversation) -> dict[int, list[int]]:
        return {
            message.id: tokens_of(message, self._vocabulary) for message in conversation.messages
        }


def _sum(tallies: Sequence[ReplayCounts]) -> ReplayCounts:
    return ReplayCounts(
        sum(tally.calls for tally in tallies),
        sum(tally.tokens for tally in tallies),
        sum(tally.drafted for tally in tallies),
        [rate for tally in tallies for rate in tally.rates],
    )
