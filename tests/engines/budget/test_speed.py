"""The budget in virtual time: the clock moves by what passes cost on a CPU, and nothing else does.

No machine's speed enters: what is tested is the policy. Drafting must pay where the text repeats
itself, and cost next to nothing where it does not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from datastores.tokens import common_prefix
from engines import decode
from engines.budget import policies, selection
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel, prior_ratio
from engines.budget.fixed import FixedBudget
from engines.budget.loss_limit import DrafterBackoffs
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.budget.selection import MergedDraft
from engines.decode import StopCriteria
from engines.draft_tree import DRAFT_MODEL, DraftTree, chain
from engines.drafters import model_drafter
from engines.drafters.draft_model import DraftModel, DraftModelDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.sampler import Sampling, make_sampler
from engines.step import Context, Step
from engines.target import ForwardOutput
from tests.engines.scripted import ScriptedTarget

PASS = 0.010
"""Seconds of a plain pass."""
CONSULTATION = 0.0001
"""Seconds a drafter takes."""


class Clock:
    """A clock that only the target and the drafters advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedTarget(ScriptedTarget):
    """The scripted target at a CPU's costs; what rows add to a pass costs `steepness` times as
    much."""

    def __init__(self, clock: Clock, steepness: float) -> None:
        super().__init__(context_length=4000)
        self._clock = clock
        self._steepness = steepness

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """Verify, and advance the clock."""
        self._clock.now += PASS * (1.0 + self._steepness * (prior_ratio(len(tree)) - 1.0))
        return super().verify(tree)


class TimedDrafter:
    """A drafter whose work takes time."""

    def __init__(self, drafter: Drafter, clock: Clock) -> None:
        self.name = drafter.name
        self.top_tokens_needed = drafter.top_tokens_needed
        self.begin = drafter.begin
        self.observe = drafter.observe
        self._propose = drafter.propose
        self._clock = clock

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Propose, and advance the clock."""
        self._clock.now += CONSULTATION
        return self._propose(context, limit)


class OverconfidentDrafter:
    """Always wrong, always confident."""

    name = "draft-model"
    top_tokens_needed = 0

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """The token that never comes."""
        return chain(context.root, [62] * min(limit, 5), DRAFT_MODEL, 0.95)

    def observe(self, step: Step) -> None:
        """Nothing."""


class TimedDraftModel(ScriptedTarget):
    """A draft model whose passes take `cost` plain passes of the target; a prompt's tokens a tenth.

    A wrong one prefers other tokens than the target, just as confidently.
    """

    def __init__(self, clock: Clock, cost: float, *, wrong: bool) -> None:
        super().__init__(context_length=4000)
        self._clock = clock
        self._cost = cost
        self._wrong = wrong

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Prefill, and advance the clock."""
        new = len(tokens) - common_prefix(self.tokens, tokens)
        self._clock.now += 0.1 * PASS * self._cost * new
        return super().prefill(tokens)

    def verify(self, tree: DraftTree) -> ForwardOutput:
        """Verify, and advance the clock."""
        self._clock.now += PASS * self._cost
        return super().verify(tree)

    def _rows(self, suffixes: list[tuple[int, ...]]) -> ForwardOutput:
        return super()._rows([(*suffix, 1) if self._wrong else suffix for suffix in suffixes])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (decode, policies, selection, model_drafter):
        monkeypatch.setattr(module, "perf_counter", made)
    return made


def seconds(
    clock: Clock,
    drafters: Sequence[Drafter],
    policy: Budget,
    sampling: Sampling,
    steepness: float,
    length: int,
    prompt: int,
) -> float:
    """Virtual time of one answer of `length` tokens to a prompt of `prompt`."""
    target = TimedTarget(clock, steepness)
    for _ in target.prefill([1 + number % 60 for number in range(prompt)]):
        pass
    started = clock.now
    draw = make_sampler(sampling)
    timed = [TimedDrafter(drafter, clock) for drafter in drafters]
    ending = StopCriteria(frozenset({-1}), length)
    for _ in decode.decode(target, timed, policy, draw, ending):
        pass
    return clock.now - started


def speedup(
    clock: Clock,
    drafters: Sequence[Drafter],
    sampling: Sampling,
    steepness: float = 1.0,
    length: int = 1500,
    prompt: int = 3,
) -> float:
    never, auto = (
        FixedBudget(0, CostModel(), AcceptanceModel()),
        AdaptiveBudget(CostModel(), AcceptanceModel()),
    )
    plain = seconds(clock, [], never, sampling, steepness, length, prompt)
    return plain / seconds(clock, drafters, auto, sampling, steepness, length, prompt)


def steps_of(clock: Clock, policy: Budget, prompt: list[int], answer: list[int]) -> list[Step]:
    """The steps in which `answer` is written behind `prompt`."""
    target = TimedTarget(clock, 1.0)
    for _ in target.prefill(prompt):
        pass
    timed = [TimedDrafter(drafter, clock) for drafter in (PromptLookup(), TokenRecycling())]
    ending = StopCriteria(frozenset({-1}), len(answer))
    steps = decode.decode(target, timed, policy, lambda _row, at, _context: answer[at], ending)
    return [step for step in steps if not step.prefill]


def test_a_fruitless_answer_does_not_keep_the_next_from_being_copied(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.engines.budget.test_speed.CONSULTATION", 0.00002)
    first = Random(5).choices(range(64), k=400)
    backoffs = DrafterBackoffs()
    fruitless = AdaptiveBudget(CostModel(), AcceptanceModel(), backoffs)
    assert len(steps_of(clock, fruitless, [1, 2, 3], first)) > 350
    restored = DrafterBackoffs()
    restored.restore(backoffs.state())
    for policy in (fruitless, AdaptiveBudget(CostModel(), AcceptanceModel(), restored)):
        steps = steps_of(clock, policy, [1, 2, 3, *first, 4, 5], first)
        drafting = [step for step in steps if step.drafted]
        # Of 64 kinds of token two or three in a row come again by chance: those are no evidence.
        assert drafting[0].position <= len([1, 2, 3, *first, 4, 5]) + 7
        assert len(steps) < 400 / 5


GREEDY = Sampling(temperature=0.0)
RANDOM = Sampling(temperature=12.0, top_k=0, top_p=1.0, min_p=0.0, seed=4)


def test_drafting_pays_where_the_text_repeats_itself(clock: Clock) -> None:
    assert speedup(clock, [PromptLookup(), TokenRecycling()], GREEDY) > 2.0


@pytest.mark.parametrize("steepness", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("overconfident", [False, True])
def test_drafting_costs_next_to_nothing_where_nothing_repeats(
    clock: Clock, overconfident: bool, steepness: float
) -> None:
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling()]
    if overconfident:
        drafters.append(OverconfidentDrafter())
    assert speedup(clock, drafters, RANDOM, steepness) >= 0.98


@pytest.mark.parametrize("steepness", [1.0, 2.0])
def test_a_first_short_answer_does_not_pay_for_learning(clock: Clock, steepness: float) -> None:
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling(), OverconfidentDrafter()]
    assert speedup(clock, drafters, RANDOM, steepness, length=200) >= 0.96


def test_an_overconfident_drafter_does_not_spoil_the_others(clock: Clock) -> None:
    assert speedup(clock, [PromptLookup(), TokenRecycling(), OverconfidentDrafter()], GREEDY) > 1.8


def small_model(clock: Clock, cost: float, *, wrong: bool) -> Drafter:
    return DraftModelDrafter(DraftModel(TimedDraftModel(clock, cost, wrong=wrong), frozenset({-1})))


@pytest.mark.parametrize("steepness", [0.3, 2.0])
@pytest.mark.parametrize("cost", [0.02, 0.5, 2.0])
@pytest.mark.parametrize("sampling", [GREEDY, RANDOM])
def test_a_useless_draft_model_costs_next_to_nothing(
    clock: Clock, sampling: Sampling, cost: float, steepness: float
) -> None:
    useless = small_model(clock, cost, wrong=True)
    assert speedup(clock, [useless], sampling, steepness, prompt=1000) >= 0.97


@pytest.mark.parametrize("prompt", [40, 400])
@pytest.mark.parametrize("cost", [0.2, 0.35, 0.6])
def test_trying_a_useless_draft_model_loses_two_seconds_at_most(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, cost: float, prompt: int
) -> None:
    """At the speeds of a model with 1.5 billion weights on two cores, with one a third as large."""
    monkeypatch.setattr(sys.modules[__name__], "PASS", 0.15)
    budget, length = AdaptiveBudget(CostModel(), AcceptanceModel()), 150
    useless = small_model(clock, cost, wrong=True)
    drafters: list[Drafter] = [PromptLookup(), TokenRecycling(), useless]
    answers = [
        seconds(clock, drafters, budget, replace(RANDOM, seed=seed), 1.0, length, prompt)
        for seed in range(4)
    ]
    assert sum(answers) - len(answers) * length * PASS < 2.0


@pytest.mark.parametrize("steepness", [0.3, 1.0])
def test_a_good_draft_model_pays(clock: Clock, steepness: float) -> None:
    good = small_model(clock, 0.05, wrong=False)
    assert speedup(clock, [good], GREEDY, steepness, prompt=1000) > 1.5


@pytest.mark.parametrize("cost", [0.5, 0.9, 2.0])
def test_a_draft_model_as_dear_as_the_target_is_left_alone(clock: Clock, cost: float) -> None:
    good = small_model(clock, cost, wrong=False)
    assert speedup(clock, [good], GREEDY, prompt=1000) >= 0.97


def test_planning_is_left_alone_where_it_takes_a_tenth_of_a_pass(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = selection.merge

    def slow(*given: Any) -> MergedDraft:
        clock.now += 0.1 * PASS
        return merge(*given)

    monkeypatch.setattr(policies, "merge", slow)
    assert speedup(clock, [PromptLookup(), TokenRecycling()], RANDOM) >= 0.96
    assert speedup(clock, [PromptLookup(), TokenRecycling()], GREEDY) > 1.8
