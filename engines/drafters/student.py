"""A draft model: a smaller model with the target's vocabulary (Leviathan et al. 2023).

The student reads the context in a KV cache of its own and drafts a chain of its likeliest tokens,
with the next candidates at each depth as branches (one forward pass gives them all). With the
target's sampler it draws with the target's noise, and so agrees more often at temperatures above
zero (`Context.draw`).

Where it stops: a further pass helps only if the text follows the chain so far, and takes the time
in which the loop emits λ·s tokens (s: measured seconds of a student's pass; λ: the loop's rate,
learned from `Step.timings`). So the chain ends where its path probability falls to λ·s, and a few
tokens behind the deepest that was verified lately: what the budget does not verify is wasted work.
The budget decides as for any drafter whether the student is consulted at all.

Its prompt is read at the first proposal, never in `begin`, which runs before the first token is
shown. A long one is read over several steps, for as much time as the student has earned: a share of
each token, and all of each that nobody else drafted. Until then it proposes nothing.

Refuses to know which engine runs the student and how it was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from datastores.errors import InputError, ModelError, SpecchatError
from datastores.tokens import common_prefix
from engines.draft_tree import STUDENT, DraftTree, chain, root_only
from engines.sampler import leaders
from engines.step import Context, Step
from engines.target import Floats, Target, Vocabulary

MAX_CHILDREN = 4
"""Candidates taken at each depth."""
MAX_LOGIT_GAP = 4.0
"""Tokens whose logits are this far below the likeliest one's are no candidates."""
MIN_PATH_PROBABILITY = 0.02
"""Path probability below which a row is not worth proposing."""
UNMEASURED_PRICE = 0.1
"""λ·s before passes and steps were measured."""
REACH_DECAY = 0.8
"""Decay of the depth limit with each proposal that is verified less deeply."""
INITIAL_REACH = 8.0
"""Depth limit before anything was verified."""

RATE_DECAY = 0.99
"""Decay of λ's sums at each step."""
PASS_DECAY = 0.9
"""Decay of the average time of a pass."""
MAX_SPIKE_RATIO = 4.0
"""One pass counts for at most this many average ones: another program had the core."""

CHAIN_TOKENS = 16
"""Up to this many new tokens are read in one pass, together with the first draft token's row."""
INITIAL_TOKENS = 8.0
"""Time for reading before anything was earned, in tokens of the loop."""
SHARE_PER_TOKEN = 0.02
"""Time for reading that each emitted token adds, in tokens."""
MAX_TOKENS = 64.0
"""The most time for reading that is kept, in tokens."""
MAX_STALL_S = 0.1
"""Longest time of reading before one step, in seconds, or one call's time if that is longer."""


@dataclass(frozen=True, slots=True)
class Student:
    """A loaded draft model.

    Attributes:
        stops: tokens that end an answer; nothing is drafted behind them.
    """

    model: Target
    stops: frozenset[int]


@dataclass(slots=True)
class StudentCosts:
    """What the student's work costs, in tokens that the loop emits in the same time.

    Attributes:
        tokens, seconds: of the loop, decayed: λ is their ratio.
        call_s: seconds of the last call of the target, without drafting.
        pass_s: average seconds of a pass over one token; 0 before the first.
        read_s: seconds for each token when reading a longer text; 0 before the first.
        allowance: time for reading that is left, in tokens.
    """

    tokens: float = 0.0
    seconds: float = 0.0
    call_s: float = 0.0
    pass_s: float = 0.0
    read_s: float = 0.0
    allowance: float = INITIAL_TOKENS

    @property
    def token_s(self) -> float:
        """1 ÷ λ; 0 before the first step."""
        return self.seconds / self.tokens if self.tokens else 0.0

    @property
    def price(self) -> float:
        """λ·s: tokens that the loop emits in the time of one pass of the student."""
        measured = self.pass_s > 0.0 and self.token_s > 0.0
        return self.pass_s / self.token_s if measured else UNMEASURED_PRICE

    def observe(self, step: Step) -> None:
        """Learn λ from a step; what only the student drafted earns time for reading."""
        if step.prefill:
            return
        self.tokens = self.tokens * RATE_DECAY + len(step.tokens)
        self.seconds = self.seconds * RATE_DECAY + step.timings.total
        self.call_s = step.timings.total - step.timings.draft
        earned = SHARE_PER_TOKEN * len(step.tokens) + step.sources.count(STUDENT)
        self.allowance = min(self.allowance + earned, MAX_TOKENS)

    def record_pass(self, seconds: float) -> None:
        """A pass over one token took `seconds`."""
        if self.pass_s:
            seconds = min(seconds, MAX_SPIKE_RATIO * self.pass_s)
            seconds = PASS_DECAY * self.pass_s + (1.0 - PASS_DECAY) * seconds
        self.pass_s = seconds

    def record_reading(self, tokens: int, seconds: float) -> None:
        """Reading `tokens` tokens took `seconds`."""
        self.read_s = seconds / tokens
        if self.token_s:
            self.allowance -= seconds / self.token_s

    def readable(self, spent: float) -> int:
        """Tokens that may be read now, after `spent` seconds of reading before the same step."""
        if not self.read_s:
            return CHAIN_TOKENS
        left = max(MAX_STALL_S, self.call_s) - spent
        if self.token_s:
            left = min(left, self.allowance * self.token_s)
        return max(int(left / self.read_s), 0)


class StudentDrafter:
    """A drafter that runs a model.

    Attributes:
        error: why the student failed; it proposes nothing then. None while it works.
    """

    name = "student"
    top_tokens_needed = 0

    def __init__(self, student: Student) -> None:
        self.error: SpecchatError | None = None
        self._model = student.model
        self._stops = student.stops
        self._costs = StudentCosts()
        self._reach = INITIAL_REACH

    def begin(self, context: Context) -> None:
        """Nothing: reading the prompt here would delay the first token."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The likeliest rows of a chain with branches.

        Nothing while the student has much to read, and where its context is full.
        """
        limit = min(limit, self._model.context_length - len(context.tokens))
        if limit < 1 or self.error is not None:
            return root_only(context.root)
        try:
            return self._draft(context, limit)
        except ModelError as error:
            self.error = ModelError(f"answers come without the small model from now on: {error}")
            return root_only(context.root)

    def observe(self, step: Step) -> None:
        """Learn λ, and how deep drafts are verified.

        Rejected tokens are dropped when the context is read next.
        """
        self._costs.observe(step)
        proposed = (one.tree for one in step.proposals if one.drafter == self.name)
        if any(tree.drafted for tree in proposed):
            rows = zip(step.tree.depths(), step.tree.sources, strict=True)
            used = max(depth for depth, sources in rows if sources & STUDENT or not depth)
            self._reach = max(self._reach * REACH_DECAY, 2.0 * used + 2.0)

    def _draft(self, context: Context, limit: int) -> DraftTree:
        tokens = list(context.tokens)
        if not self._catch_up(tokens):
            return root_only(context.root)
        new, branches = tokens[len(self._model.tokens) :], DraftBranches()
        depth_limit, price = min(limit, int(self._reach)), self._costs.price
        for _ in range(depth_limit):
            started = perf_counter()
            children = self._children(new, tokens, context)
            if len(new) == 1:
                self._costs.record_pass(perf_counter() - started)
            token = branches.extend(children)
            if token in self._stops or branches.path <= price:
                break
            tokens.append(token)
            new = [token]
        return branches.tree(context.root, limit)

    def _catch_up(self, tokens: Sequence[int]) -> bool:
        """Read `tokens` but for the last few; whether there was time for it."""
        model = self._model
        start = min(common_prefix(model.tokens, tokens), len(tokens) - 1)
        if max(tokens[start:]) >= model.vocabulary_size:
            return False
        rows, spent = min(CHAIN_TOKENS, model.max_rows), 0.0
        while (missing := len(tokens) - start) > rows:
            count = min(self._costs.readable(spent), missing - 1)
            if count < CHAIN_TOKENS - 1:
                return False
            started = perf_counter()
            for _ in model.prefill(tokens[: start + count]):
                pass
            seconds = perf_counter() - started
            self._costs.record_reading(count, seconds)
            start, spent = start + count, spent + seconds
        model.rewind(start)
        return True

    def _children(
        self, new: list[int], tokens: Sequence[int], context: Context
    ) -> list[tuple[int, float]]:
        """Candidates behind `tokens`, of which `new` are not in the cache, and their probabilities.

        The token that is drawn comes first. With the target's noise it is the target's about as
        often as a greedy one would be: it takes the likeliest one's probability.
        """
        row = self._model.verify(chain(new[0], new[1:], STUDENT)).logits[len(new) - 1]
        found = _likeliest(row)
        drawn = context.draw(row, len(tokens) - context.answer_start, tokens)
        self._model.commit(range(len(new)))
        first = found[0][1]
        if drawn == found[0][0]:
            return found
        others = [(token, share) for token, share in found if token != drawn]
        rest = sum(share for _, share in others)
        scale = (1.0 - first) / max(rest, 1.0 - first)
        return [(drawn, first), *((token, share * scale) for token, share in others)]


class DraftBranches:
    """Grows a chain whose every depth has branches.

    Attributes:
        path: probability of the chain so far.
    """

    def __init__(self) -> None:
        self.path = 1.0
        self._tip = -1
        self._rows: list[tuple[float, int, int, float]] = []

    def extend(self, children: Sequence[tuple[int, float]]) -> int:
        """Add `children` (token, probability) behind the chain; the first of them extends it."""
        first = len(self._rows)
        for token, probability in children:
            self._rows.append((self.path * probability, self._tip, token, probability))
        self._tip, self.path = first, self.path * children[0][1]
        return children[0][0]

    def tree(self, root: int, limit: int) -> DraftTree:
        """The `limit` likeliest rows under `root`."""
        tree, places = root_only(root), {-1: 0}
        # A path is never likelier than its parent's and the sort is stable: parents come first.
        order = sorted(range(len(self._rows)), key=lambda index: -self._rows[index][0])
        for index in order[:limit]:
            path, parent, token, probability = self._rows[index]
            if path < MIN_PATH_PROBABILITY:
                break
            places[index] = tree.add(places[parent], token, STUDENT, probability)
        return tree


def _likeliest(row: Floats) -> list[tuple[int, float]]:
    """The likeliest tokens under the softmax of a row of logits, and their probabilities."""
    tokens, logits = leaders(row, MAX_CHILDREN, MAX_LOGIT_GAP)
    total = np.exp(row - logits[0]).sum()
    shares = np.exp(logits - logits[0]) / total
    return list(zip(tokens.tolist(), shares.tolist(), strict=True))


MAX_EXTRA_TOKENS = 128
"""Unused tokens that the longer of two vocabularies may have at its end: sisters of one model are
padded to different sizes."""


def require_same_vocabulary(student: Vocabulary, target: Vocabulary) -> None:
    """Check that a draft model's tokens are the target's, one by one.

    Raises:
        InputError: they differ; the first token that does is named.
    """
    for token in range(min(student.size, target.size)):
        own, other = student.text(token), target.text(token)
        if own != other:
            raise InputError(f"token {token} is {own!r} to one model and {other!r} to the other")
    if abs(student.size - target.size) > MAX_EXTRA_TOKENS:
        raise InputError(
            f"token {min(student.size, target.size)} is missing in one of the vocabularies, of"
            f" {student.size} and {target.size} tokens"
        )
