"""A drafter that runs a model: a separate draft model, or the target's own heads.

It drafts a chain of the model's most probable tokens, with the next candidates at each depth as
branches (one forward pass gives them all). Heads that give the distributions of several tokens in
one pass draft the most probable combinations. With the target's sampler it draws with the target's
noise, and so agrees more often at temperatures above zero (`Context.draw`).

A further pass helps only if the text follows the chain so far. It takes the time in which the loop
emits λ·s tokens (s: measured seconds of a pass; λ: the loop's rate, learned from `Step.timings`),
and verifying its token takes that of `Context.row_price` more. So the chain ends where its path
probability falls to the sum of both. It also ends a few tokens beyond the deepest that was recently
verified, since drafting what the budget does not verify is wasted. As for any drafter, the budget
decides whether the model is consulted at all.

The prompt is read at the first proposal, not in `begin`, which runs before the first token is
shown. A long one is read over several steps, for as much time as the drafter has earned: a share of
each token, and all of each that nobody else drafted. Until then it proposes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from datastores.errors import ModelError, SpecchatError
from engines.draft_tree import DraftTree, root_only
from engines.sampler import leaders
from engines.step import Context, Step
from engines.target import Floats

MAX_CHILDREN = 4
"""Candidates taken at each depth."""
MAX_LOGIT_GAP = 4.0
"""Tokens whose logits are this far below the most probable one's are not candidates."""
MIN_PATH_PROBABILITY = 0.02
"""Path probability below which a row is not worth proposing."""
UNMEASURED_PRICE = 0.1
"""λ·s before passes and steps are measured."""
REACH_DECAY = 0.8
"""Decay of the depth limit with each proposal that is verified less deeply."""
INITIAL_REACH = 8.0
"""Depth limit before anything is verified."""

RATE_DECAY = 0.99
"""Decay of λ's sums at each step."""
PASS_DECAY = 0.9
"""Decay of the average time of a pass."""
MAX_SPIKE_RATIO = 4.0
"""Factor of the average that one pass counts for at most: another program had the core."""

CHAIN_TOKENS = 16
"""Most new tokens that are read in one pass, together with the first draft token's row."""
INITIAL_TOKENS = 8.0
"""Initial allowance for reading, as the time of tokens of the loop."""
SHARE_PER_TOKEN = 0.02
"""Allowance for reading that each emitted token adds, in tokens."""
MAX_TOKENS = 64.0
"""Largest allowance for reading, in tokens."""
MAX_STALL_S = 0.1
"""Longest reading before one step, in seconds, or one step's time if that is longer."""


class DraftingModel(Protocol):
    """A model that drafts. It reads one text at a time."""

    @property
    def context_length(self) -> int:
        """Length of the longest text, drafted tokens included."""

    @property
    def max_depth(self) -> int:
        """Maximum draft depth."""

    @property
    def draft_vocabulary(self) -> NDArray[np.int64] | None:
        """Ids of the only tokens that it can draft, [n]; None if it can draft any."""

    def begin(self, tokens: Sequence[int]) -> int:
        """Switch to a text, and return how many of its last tokens are unread, the root included.

        0 if the model cannot continue this text.
        """

    def read(self, count: int) -> None:
        """Read the first `count` of the unread tokens, without the root.

        Raises:
            ModelError: the model failed.
        """

    def next_rows(self, tokens: Sequence[int], count: int) -> Floats:
        """Read the rest of the text, to which drafted tokens may have been appended, in one pass.

        Returns:
            logits of the next tokens, up to `count` of them, float32 [rows, vocabulary], minus
            infinity outside `draft_vocabulary`: a view, valid until the next call. Rows after the
            first do not depend on which tokens are chosen from those before.

        Raises:
            ModelError: the model failed.
        """


@dataclass(slots=True)
class DraftCosts:
    """The cost of a model's drafting, in tokens that the loop emits in the same time.

    Attributes:
        tokens, seconds: decayed sums over the loop's steps, whose ratio is λ.
        step_s: seconds of the last step, without drafting.
        pass_s: average seconds of a pass over one token; 0 before the first.
        read_s: seconds per token when reading a longer text; 0 before the first.
        allowance: remaining time for reading, in tokens.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    step_s: float = 0.0
    pass_s: float = 0.0
    read_s: float = 0.0
    allowance: float = INITIAL_TOKENS

    @property
    def token_s(self) -> float:
        """1 ÷ λ; 0 before the first step."""
        return self.seconds / self.tokens if self.tokens else 0.0

    @property
    def price(self) -> float:
        """λ·s: tokens that the loop emits in the time of one pass."""
        measured = self.pass_s > 0.0 and self.token_s > 0.0
        return self.pass_s / self.token_s if measured else UNMEASURED_PRICE

    def observe(self, step: Step, origin: int) -> None:
        """Learn λ from a step; tokens that only `origin` drafted earn time for reading."""
        if step.prefill:
            return
        self.tokens = self.tokens * RATE_DECAY + len(step.tokens)
        self.seconds = self.seconds * RATE_DECAY + step.timings.total
        self.step_s = step.timings.total - step.timings.draft
        earned = SHARE_PER_TOKEN * len(step.tokens) + step.origins.count(origin)
        self.allowance = min(self.allowance + earned, MAX_TOKENS)

    def record_pass(self, seconds: float) -> None:
        """Record that a pass over one token took `seconds`."""
        if self.pass_s:
            seconds = min(seconds, MAX_SPIKE_RATIO * self.pass_s)
            seconds = PASS_DECAY * self.pass_s + (1.0 - PASS_DECAY) * seconds
        self.pass_s = seconds

    def record_reading(self, tokens: int, seconds: float) -> None:
        """Record that reading `tokens` tokens took `seconds`."""
        self.read_s = seconds / tokens
        if self.token_s:
            self.allowance -= seconds / self.token_s

    def readable(self, spent: float) -> int:
        """Tokens that may be read now, after `spent` seconds of reading before the same step."""
        if not self.read_s:
            return CHAIN_TOKENS
        left = max(MAX_STALL_S, self.step_s) - spent
        if self.token_s:
            left = min(left, self.allowance * self.token_s)
        return max(int(left / self.read_s), 0)


class ModelDrafter:
    """Drafts with a model.

    Args:
        stops: tokens that end an answer; nothing is drafted after them.

    Attributes:
        subject: the model's name in messages.
        error: why the model failed, after which it proposes nothing; None while it works.
    """

    name: ClassVar[str]
    origin: ClassVar[int]
    subject: ClassVar[str]
    top_tokens_needed = 0

    def __init__(self, model: DraftingModel, stops: frozenset[int]) -> None:
        self.error: SpecchatError | None = None
        self._model = model
        self._stops = stops
        self._costs = DraftCosts()
        self._reach = INITIAL_REACH

    def begin(self, context: Context) -> None:
        """Nothing to do: reading the prompt here would delay the first token."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The most probable rows of a chain with branches.

        The root alone while the model has much to read, and where its context is full.
        """
        limit = min(limit, self._model.context_length - len(context.tokens))
        if limit < 1 or self.error is not None:
            return root_only(context.root)
        try:
            return self._draft(context, limit)
        except ModelError as error:
            self.error = ModelError(f"continuing without {self.subject}: {error}")
            return root_only(context.root)

    def observe(self, step: Step) -> None:
        """Learn λ, and the depth to which drafts are verified."""
        self._costs.observe(step, self.origin)
        if not step.proposals:
            return
        proposed = (one.tree for one in step.proposals if one.drafter == self.name)
        if any(tree.drafted for tree in proposed):
            rows = zip(step.tree.depths(), step.tree.origins, strict=True)
            used = max(depth for depth, origins in rows if origins & self.origin or not depth)
            self._reach = max(self._reach * REACH_DECAY, 2.0 * used + 2.0)

    def _draft(self, context: Context, limit: int) -> DraftTree:
        tokens = list(context.tokens)
        unread, branches = self._catch_up(tokens), DraftBranches(self.origin, self._stops)
        if not unread:
            return root_only(context.root)
        depth, price = min(limit, int(self._reach), self._model.max_depth), self._costs.price
        end = len(tokens) + depth
        while True:
            started = perf_counter()
            for row in self._model.next_rows(tokens, end - len(tokens)):
                tokens.append(branches.extend(self._children(row, tokens, context)))
                if tokens[-1] in self._stops or branches.path <= context.row_price:
                    end = len(tokens)
                    break
            if unread == 1:
                self._costs.record_pass(perf_counter() - started)
            if len(tokens) >= end or branches.path <= price + context.row_price:
                return branches.tree(context.root, limit)
            branches.keep_chain()
            unread = 1

    def _catch_up(self, tokens: Sequence[int]) -> int:
        """Read all but the last few of `tokens`; returns how many are left, 0 if time ran out."""
        unread, spent = self._model.begin(tokens), 0.0
        while unread > CHAIN_TOKENS:
            count = min(self._costs.readable(spent), unread - 1)
            if count < CHAIN_TOKENS - 1:
                return 0
            started = perf_counter()
            self._model.read(count)
            seconds = perf_counter() - started
            self._costs.record_reading(count, seconds)
            unread, spent = unread - count, spent + seconds
        return unread

    def _children(
        self, row: Floats, tokens: Sequence[int], context: Context
    ) -> list[tuple[int, float]]:
        """Candidates after `tokens` with their probabilities; the token that is drawn comes first.

        With the target's noise, the drawn token equals the target's about as often as a greedy one
        would, so it takes the most probable token's probability.
        """
        found = likeliest(row, self._model.draft_vocabulary)
        drawn = context.draw(row, len(tokens) - context.answer_start, tokens)
        first = found[0][1]
        if drawn == found[0][0]:
            return found
        others = [(token, share) for token, share in found if token != drawn]
        rest = sum(share for _, share in others)
        scale = (1.0 - first) / max(rest, 1.0 - first)
        return [(drawn, first), *((token, share * scale) for token, share in others)]


class DraftBranches:
    """Grows a chain with branches at every depth, none of them after one of the `stops` tokens.

    Attributes:
        path: the probability of the chain so far.
    """

    def __init__(self, origin: int, stops: frozenset[int]) -> None:
        self.path = 1.0
        self._origin, self._stops = origin, stops
        self._tips = [(1.0, -1)]  # path probability and row, the chain's first
        self._rows: list[tuple[float, int, int, float]] = []

    def extend(self, children: Sequence[tuple[int, float]]) -> int:
        """Append `children` (token, probability) to every tip; the first of them extends the chain.

        Several distributions of one pass make all combinations of their tokens (DDTree,
        arXiv 2604.12989), of which the least probable are left out.
        """
        first = len(self._rows)
        for path, tip in self._tips:
            for token, probability in children:
                if path * probability >= MIN_PATH_PROBABILITY:
                    self._rows.append((path * probability, tip, token, probability))
        grown = enumerate(self._rows[first:], first)
        self._tips = [(row[0], place) for place, row in grown if row[2] not in self._stops]
        self.path *= children[0][1]
        return children[0][0]

    def keep_chain(self) -> None:
        """Extend only the chain from here on, since the next pass reads nothing else."""
        del self._tips[1:]

    def tree(self, root: int, limit: int) -> DraftTree:
        """The `limit` most probable rows under `root`."""
        tree, places = root_only(root), {-1: 0}
        # No path is more probable than its parent's and the sort is stable: parents come first.
        order = sorted(range(len(self._rows)), key=lambda index: -self._rows[index][0])
        for index in order[:limit]:
            _, parent, token, probability = self._rows[index]
            places[index] = tree.add(places[parent], token, self._origin, probability)
        return tree


def likeliest(
    row: Floats, draft_vocabulary: NDArray[np.int64] | None = None
) -> list[tuple[int, float]]:
    """The most probable tokens under the softmax of a row of logits, and their probabilities.

    The softmax is normalised over the draft vocabulary, which may be a twentieth of all tokens.

    Raises:
        ModelError: a logit is not a number.
    """
    logits = row if draft_vocabulary is None else row[draft_vocabulary]
    tokens, leading = leaders(logits, MAX_CHILDREN, MAX_LOGIT_GAP)
    if not len(leading):
        raise ModelError("its weights are damaged: its logits are not numbers")
    weights = logits - leading[0]
    total = np.exp(weights, out=weights).sum()
    if draft_vocabulary is not None:
        tokens = draft_vocabulary[tokens]
    shares = np.exp(leading - leading[0]) / total
    return list(zip(tokens.tolist(), shares.tolist(), strict=True))
