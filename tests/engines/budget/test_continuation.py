"""Drafters continue a model's draft: lossless, credited to who proposed it, and worth its time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from engines import decode
from engines.budget import policies, selection
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.continuation import SecondRound, find_leaf
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.budget.selection import merge
from engines.decode import StopCriteria
from engines.draft_tree import CHATS, DRAFT_MODEL, PROMPT, DraftTree, chain, credited, root_only
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.sampler import Sampling, make_sampler
from engines.step import Context, Proposal, Step
from tests.engines.budget.test_speed import PASS, Clock, TimedDrafter, TimedTarget

HIDDEN = np.zeros(4, np.float32)
STEEPNESS = 0.3
TOKENS = 1200
RANDOM = Sampling(temperature=12.0, top_k=0, top_p=1.0, min_p=0.0, seed=4)
"""Text that hardly repeats itself."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (decode, policies, selection):
        monkeypatch.setattr(module, "perf_counter", made)
    return made


class OracleHead:
    """Knows the text; each of its two tokens is right with `accuracy`."""

    name = "draft-model"
    top_tokens_needed = 0

    def __init__(self, text: Sequence[int], accuracy: float) -> None:
        self._text = text
        self._accuracy = accuracy

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Two tokens of the text at most, the first wrong one last."""
        tree, here = root_only(context.root), len(context.tokens)
        for index, token in enumerate(self._text[here : here + min(limit, 2)]):
            right = Random(here * 2 + index).random() < self._accuracy
            tree.add(index, token if right else (token + 1) % 64, DRAFT_MODEL, self._accuracy)
            if not right:
                break
        return tree

    def observe(self, step: Step) -> None:
        """Nothing."""


class PatchyHistory:
    """Knows what follows at every third position of the text, if it sees the text before it."""

    name = "crest"
    top_tokens_needed = 0

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Six tokens at most."""
        here = len(context.tokens)
        known = here % 3 == 0 and context.tokens[-4:] == list(self._text[here - 4 : here])
        follows = self._text[here : here + min(limit, 6)] if known else []
        return chain(context.root, list(follows), CHATS, 0.9)

    def observe(self, step: Step) -> None:
        """Nothing."""


class AlternatingHistory(PatchyHistory):
    """Knows what follows in every other stretch of 60 tokens, and nothing in between."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Six tokens at most."""
        here = len(context.tokens)
        follows = self._text[here : here + min(limit, 6)] if here // 60 % 2 else []
        return chain(context.root, list(follows), CHATS, 0.95)


class SlowHead(OracleHead):
    """Takes the time of a quarter of a pass."""

    def __init__(self, text: Sequence[int], clock: Clock) -> None:
        super().__init__(text, 0.9)
        self._clock = clock

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Propose, and advance the clock."""
        self._clock.now += PASS / 4
        return super().propose(context, limit)


def answer(clock: Clock, drafters: Sequence[Drafter], budget: Budget) -> list[Step]:
    """One sampled answer in virtual time."""
    target = TimedTarget(clock, STEEPNESS)
    for _ in target.prefill([1, 2, 3]):
        pass
    timed = [TimedDrafter(drafter, clock) for drafter in drafters]
    ending = StopCriteria(frozenset({-1}), TOKENS)
    return list(decode.decode(target, timed, budget, make_sampler(RANDOM), ending))


def adaptive() -> AdaptiveBudget:
    return AdaptiveBudget(CostModel(), AcceptanceModel())


def tokens_of(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def plain_text(clock: Clock) -> list[int]:
    """The prompt and its answer in plain decoding."""
    return [1, 2, 3, *tokens_of(answer(clock, [], FixedBudget(0, CostModel(), AcceptanceModel())))]


@pytest.mark.parametrize("accuracy", [0.6, 0.7, 0.8])
def test_continuing_is_lossless_and_brings_more_tokens_a_step(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, accuracy: float
) -> None:
    text = plain_text(clock)
    both: list[Drafter] = [OracleHead(text, accuracy), PatchyHistory(text)]
    started = clock.now
    continued = answer(clock, both, adaptive())
    between = clock.now
    monkeypatch.setattr(SecondRound, "propose", lambda *_: [])
    overlaid = answer(clock, both, adaptive())
    assert tokens_of(continued) == tokens_of(overlaid) == text[3:]
    assert len(continued) < 0.95 * len(overlaid)
    assert between - started < clock.now - between


def test_continued_tokens_are_credited_to_who_proposed_them(clock: Clock) -> None:
    text = plain_text(clock)
    both: list[Drafter] = [OracleHead(text, 0.8), PatchyHistory(text)]
    behind = 0
    for step in answer(clock, both, adaptive()):
        for proposal in step.proposals:
            if not (proposal.after and proposal.tree.drafted):
                continue
            assert proposal.drafter == "crest"
            assert proposal.tree.tokens[0] == proposal.after[-1]
            depth = len(proposal.after)
            if step.tokens[:depth] == proposal.after:
                behind += sum(credited(origin) == CHATS for origin in step.origins[depth:])
    assert behind > 50


def test_without_a_model_there_is_no_second_round(clock: Clock) -> None:
    steps = answer(clock, [PromptLookup(), TokenRecycling()], adaptive())
    assert any(step.proposals for step in steps)
    assert not any(proposal.after for step in steps for proposal in step.proposals)


def test_a_second_round_that_brings_nothing_is_paused(clock: Clock) -> None:
    text = plain_text(clock)
    knows_nothing = PatchyHistory([])
    steps = answer(clock, [OracleHead(text, 0.8), knows_nothing], adaptive())
    late = steps[len(steps) // 2 :]
    assert sum(bool(one.after) for step in late for one in step.proposals) < 0.2 * len(late)


def test_a_slow_drafter_is_consulted_where_the_others_have_nothing(clock: Clock) -> None:
    text = plain_text(clock)
    steps = answer(clock, [AlternatingHistory(text), SlowHead(text, clock)], adaptive())
    consulted: dict[bool, list[bool]] = {True: [], False: []}
    for step in steps[len(steps) // 4 :]:
        others = any(one.tree.drafted for one in step.proposals if one.drafter == "crest")
        consulted[others].append(any(one.drafter == "draft-model" for one in step.proposals))
    assert sum(consulted[False]) > 0.8 * len(consulted[False])
    assert sum(consulted[True]) < 0.4 * len(consulted[True])


class ColdHead(SlowHead):
    """Reads the prompt at its first proposal, in the time of eight passes."""

    _is_cold = True

    def propose(self, context: Context, limit: int) -> DraftTree:
        """See `SlowHead.propose`."""
        if self._is_cold:
            self._clock.now += 8 * PASS
            self._is_cold = False
        return super().propose(context, limit)


def test_a_slow_first_consultation_counts_in_no_situation(clock: Clock) -> None:
    text = plain_text(clock)
    steps = answer(clock, [AlternatingHistory(text), ColdHead(text, clock)], adaptive())
    consulted = []
    for step in steps[len(steps) // 20 : len(steps) // 4]:
        if not any(one.tree.drafted for one in step.proposals if one.drafter == "crest"):
            consulted.append(any(one.drafter == "draft-model" for one in step.proposals))
    assert sum(consulted) > 0.8 * len(consulted)


def test_the_most_probable_leaf_of_a_model_is_found() -> None:
    model = root_only(9)
    first = model.add(0, 1, DRAFT_MODEL, 0.9)
    model.add(first, 2, DRAFT_MODEL, 0.8)
    model.add(0, 3, DRAFT_MODEL, 0.1)
    proposals = [
        Proposal("draft-model", model, 0.0),
        Proposal("prompt", chain(9, [4], PROMPT), 0.0),
    ]
    merged = merge(9, proposals, 0.0)
    leaf = find_leaf(merged, [1, 4, 2, 3], 8)
    assert leaf is not None
    assert (leaf.tokens, leaf.limit) == ((1, 2), 5)
    drafters: list[Drafter] = [PromptLookup(), OracleHead([], 0.5)]
    assert [drafter.name for drafter in leaf.drafters(drafters)] == ["prompt"]
    context = Context([7, 9], HIDDEN, 0.5, make_sampler(RANDOM), 1)
    behind = leaf.context(context)
    assert (behind.tokens, behind.root, behind.hidden.size) == ([7, 9, 1, 2], 2, 0)
    # Models draw with the target's noise there too, which is keyed by the offset in the answer.
    assert (behind.draw, behind.answer_start) == (context.draw, 1)
    assert context.tokens == [7, 9]
    assert find_leaf(merged, [1, 4, 2, 3], 3) is None
    assert find_leaf(merged, [1, 4], 8) is None


def test_prompt_lookup_continues_drafted_tokens_and_does_not_learn_them() -> None:
    drafter, context = PromptLookup(), Context([1, 2, 3, 4, 5, 6, 9, 2], HIDDEN, 0.0)
    drafter.begin(context)
    assert drafter.propose(context, 3).drafted == 0
    behind = Context([*context.tokens, 3], HIDDEN, 0.0)
    assert drafter.propose(behind, 3).tokens == [3, 4, 5, 6]
    assert drafter.propose(context, 3).drafted == 0
    context.tokens += [5, 6]
    assert drafter.propose(context, 1).tokens == [6, 9]
