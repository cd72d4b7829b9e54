"""`specchat bench simulate`: estimates the speed-up from a person's own chats, without a model.

Where drafts depend on tokens alone, the answer decides which of them lossless decoding accepts, so
simulating a chat gives its tokens per step (`engines.drafter_simulation`). Chats are simulated in
order; each becomes history for those after it. Each drafter alone is tried at fixed draft lengths,
and all of them together as the budget would use them on this machine. With the measured costs of a
pass, that gives the speed-up.

Two things cannot be known without the model: what the dense index and the draft model would draft,
and the scores that token recycling learns from. The tokens that followed each token in the chat
stand in for those scores, so recycling is underestimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np

from app.bench.environment import CREST_BYTES, BenchStores
from app.bench.workloads import PastConversation
from app.engine.draft_resources import DraftResources
from app.engine.drafters import make_drafters
from app.indexing.corpus_index import split_text
from datastores.chats.records import ASSISTANT, StoredMessage
from datastores.crest.reader import CrestReader
from datastores.crest.store import CrestStore
from datastores.suffix_reader import SuffixReader
from datastores.token_cache import TokenCache
from engines.budget.selection import choose_count, prune
from engines.draft_tree import DraftTree
from engines.drafter_simulation import CombinedDrafter, Recorded, SimulationCounts, simulate
from engines.drafters.protocol import Drafter
from engines.step import Context, Step
from engines.target import Vocabulary

BUDGETS = (1, 2, 3, 4, 5, 7, 9, 11, 15, 23, 31)
"""Draft lengths to try; with the root, the widths whose costs are measured."""
MAX_BUDGET = BUDGETS[-1]
ALL = "all"
SIMULATED = ("prompt", "recycle", "suffix", "crest")
"""Drafters that need only tokens."""

Counts = Mapping[int, SimulationCounts]
"""One drafter's results by draft length."""


@dataclass(slots=True)
class Simulated:
    """One drafter's results in every chat, and the seconds of each of its proposals."""

    chats: list[Counts] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def total(self) -> Counts:
        """All chats together."""
        budgets = self.chats[0] if self.chats else ()
        return {budget: _sum([chat[budget] for chat in self.chats]) for budget in budgets}

    def speedup(self, counts: SimulationCounts, table: Sequence[float]) -> float:
        """Seconds of plain decoding ÷ seconds with `counts`' steps, the drafter's own included.

        Args:
            table: seconds of a pass by its number of rows, from 1 on.
        """
        if not counts.steps:
            return 1.0
        rows = np.interp(1.0 + counts.drafted_per_step, range(1, len(table)), table[1:])
        return counts.tokens_per_step * table[1] / (float(rows) + fmean(self.seconds))

    def best(self, table: Sequence[float]) -> int:
        """The draft length with the fastest decoding; the smallest if none pays."""
        total = self.total()
        return max(total, key=lambda budget: self.speedup(total[budget], table))


class BudgetedDrafters:
    """All drafters together, as the budget uses them: only rows that pay are drafted."""

    name = ALL
    top_tokens_needed = 0

    def __init__(self, drafters: Sequence[Drafter], table: Sequence[float]) -> None:
        self._all = CombinedDrafter(drafters)
        self._table = table

    def begin(self, context: Context) -> None:
        """Begin a new answer."""
        self._all.begin(context)

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The rows that pay, of the `limit` most probable ones."""
        tree = self._all.propose(context, limit)
        paths = list(tree.probabilities)
        for row in range(1, len(tree)):
            paths[row] *= paths[tree.parents[row]]
        chosen = choose_count(paths[1:], self._table)
        return prune(tree, range(1, chosen + 1))

    def observe(self, step: Step) -> None:
        """Learn from the step."""
        self._all.observe(step)


def recordings(
    messages: Sequence[StoredMessage], ids: Mapping[int, list[int]], context: int
) -> list[Recorded]:
    """Every answer among `messages` with the tokens before it, at most `context` of them.

    The few tokens of the chat template are left out.

    Args:
        ids: token ids by message id.
    """
    parents = {message.id: message.parent for message in messages}
    answers = []
    for message in messages:
        before: list[int] = []
        at = message.parent
        while message.role == ASSISTANT and at is not None and len(before) < context:
            before = ids[at] + before
            at = parents[at]
        # Prefill gives the first token.
        if before and len(ids[message.id]) > 1:
            answers.append(Recorded(tuple(before[-context:]), tuple(ids[message.id])))
    return answers


def tokens_of(message: StoredMessage, vocabulary: Vocabulary) -> list[int]:
    """The token ids of a message, an answer's stop token included.

    Stored ids are used if this tokenizer made them.
    """
    if message.tokens and message.tokenizer == vocabulary.fingerprint:
        return list(message.tokens)
    pieces = map(vocabulary.encode, split_text(message.content))
    ids = [token for piece in pieces for token in piece]
    return ids + sorted(vocabulary.stops)[:1] if message.role == ASSISTANT else ids


class Simulation:
    """Simulates chats, one after another.

    Attributes:
        drafters: results by name of the drafter; those of all together under `ALL`.
    """

    def __init__(
        self, vocabulary: Vocabulary, context: int, past: BenchStores, table: Sequence[float]
    ) -> None:
        """Keep `context` tokens before an answer, and add simulated chats to `past`.

        Args:
            table: seconds of a pass by its number of rows, from 1 on.
        """
        self._alone = make_drafters(SIMULATED, past.resources)
        self._together = BudgetedDrafters(make_drafters(SIMULATED, past.resources), table)
        self.drafters = {drafter.name: Simulated() for drafter in (*self._alone, self._together)}
        self._vocabulary = vocabulary
        self._context = context
        self._past = past
        self._table = table

    def remember(self, conversations: Sequence[PastConversation]) -> None:
        """Add chats to the history without simulating them."""
        self._past.rebuild(
            ids for conversation in conversations for ids in self._ids(conversation).values()
        )

    def run(self, conversation: PastConversation) -> int:
        """Simulate one chat, then add it to the history; returns the number of tokens of its
        answers."""
        ids = self._ids(conversation)
        answers = recordings(conversation, ids, self._context)
        for drafter in self._alone:
            self._simulate(drafter, answers, BUDGETS)
        self._simulate(self._together, answers, (MAX_BUDGET,))
        self._past.learn(*ids.values())
        return sum(len(answer.answer) for answer in answers)

    def _simulate(
        self, drafter: Drafter, answers: Sequence[Recorded], budgets: Sequence[int]
    ) -> None:
        counts, seconds = simulate(drafter, answers, budgets)
        self.drafters[drafter.name].chats.append(counts)
        self.drafters[drafter.name].seconds += seconds

    def _ids(self, conversation: PastConversation) -> dict[int, list[int]]:
        return {message.id: tokens_of(message, self._vocabulary) for message in conversation}


def _sum(counts: Sequence[SimulationCounts]) -> SimulationCounts:
    return SimulationCounts(
        sum(counts.steps for counts in counts),
        sum(counts.tokens for counts in counts),
        sum(counts.drafted for counts in counts),
        [rate for counts in counts for rate in counts.rates],
    )


@contextmanager
def empty_history() -> Iterator[BenchStores]:
    """A history without chats, in a temporary folder that is removed at the end of the block."""
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        crest, tokens = Path(folder) / "crest.db", Path(folder) / "tokens.db"
        with (
            closing(CrestStore.open(crest, CREST_BYTES)) as store,
            closing(CrestReader(crest)) as ngrams,
            closing(TokenCache.open(tokens)) as cache,
            closing(SuffixReader(tokens)) as suffixes,
        ):
            resources = DraftResources(crest=ngrams, suffixes=suffixes)
            yield BenchStores(Path(folder), resources, store, cache)
