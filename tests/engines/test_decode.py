"""The loop: speculative decoding equals plain decoding, whatever the drafts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engines.decode
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.budget.policies import AdaptiveBudget
from engines.budget.protocol import Budget
from engines.decode import StopCriteria, decode
from engines.draft_tree import DRAFT_MODEL, DraftTree, root_only
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.sampler import Sampling, make_sampler
from engines.step import Context, Step
from engines.target import Floats
from tests.engines.scripted import VOCABULARY, ScriptedTarget

NEVER = frozenset({-1})
LONG = StopCriteria(NEVER, 80)


class RandomDrafter:
    """Proposes arbitrary trees: the worst a drafter may do without breaking the protocol."""

    name = "draft-model"
    top_tokens_needed = 0

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def begin(self, context: Context) -> None:
        """Nothing."""

    def propose(self, context: Context, limit: int) -> DraftTree:
        """A random tree of at most `limit` rows."""
        tree = root_only(context.root)
        taken: set[tuple[int, int]] = set()
        for _ in range(self._random.randint(0, limit)):
            place = (self._random.randrange(len(tree)), self._random.randrange(VOCABULARY))
            if place not in taken:
                taken.add(place)
                tree.add(*place, DRAFT_MODEL, self._random.random())
        return tree

    def observe(self, step: Step) -> None:
        """Nothing."""


def run(
    prompt: Sequence[int],
    drafters: Sequence[Drafter],
    budget: Budget,
    sampling: Sampling,
    ending: StopCriteria = LONG,
    target: ScriptedTarget | None = None,
) -> list[Step]:
    target = target or ScriptedTarget()
    for _ in target.prefill(prompt):
        pass
    draw = make_sampler(sampling)
    return list(decode(target, drafters, budget, draw, ending, temperature=sampling.temperature))


def tokens(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps for token in step.tokens]


def fixed(count: int) -> FixedBudget:
    return FixedBudget(count, CostModel(), AcceptanceModel())


def every_drafter() -> list[Drafter]:
    return [PromptLookup(), TokenRecycling(), RandomDrafter(3)]


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.5])
@pytest.mark.parametrize("chains_only", [False, True])
def test_drafts_never_change_the_answer(temperature: float, chains_only: bool) -> None:
    sampling = Sampling(temperature=temperature, seed=5)
    plain = run([1, 2, 3], [], fixed(0), sampling)
    drafted = run(
        [1, 2, 3],
        every_drafter(),
        fixed(12),
        sampling,
        target=ScriptedTarget(chains_only=chains_only),
    )
    assert tokens(drafted) == tokens(plain)
    assert len(plain) == 80
    assert sum(step.accepted for step in drafted) > 10


@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20),
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    penalty=st.sampled_from([1.0, 1.3]),
    count=st.integers(0, 40),
    limit=st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_any_random_tree_is_lossless(
    prompt: list[int], seed: int, temperature: float, penalty: float, count: int, limit: int
) -> None:
    sampling = Sampling(temperature, seed=seed, repeat_penalty=penalty)
    ending = StopCriteria(frozenset({9}), limit)
    plain = run(prompt, [], fixed(0), sampling, ending)
    drafted = run(prompt, [RandomDrafter(seed), PromptLookup()], fixed(count), sampling, ending)
    assert tokens(drafted) == tokens(plain)
    assert drafted[-1].finish == plain[-1].finish


def test_the_adaptive_budget_is_lossless_too() -> None:
    sampling = Sampling(temperature=0.0)
    plain = run([4, 5], [], fixed(0), sampling, StopCriteria(NEVER, 300))
    budget = AdaptiveBudget(CostModel(), AcceptanceModel())
    drafted = run([4, 5], every_drafter(), budget, sampling, StopCriteria(NEVER, 300))
    assert tokens(drafted) == tokens(plain)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_goes_before_the_prompt_does_not_shift_the_noise(temperature: float) -> None:
    # The scripted model sees the last token alone, so only the noise could change the answer.
    sampling = Sampling(temperature, seed=3)
    short = run([1, 2, 3], [], fixed(0), sampling)
    long = run([*range(40), 1, 2, 3], every_drafter(), fixed(9), sampling)
    assert tokens(long) == tokens(short)


@given(
    cuts=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    temperature=st.sampled_from([0.0, 0.8, 1.5]),
)
@settings(max_examples=30)
def test_an_answer_in_strides_is_the_answer_in_one(cuts: list[int], temperature: float) -> None:
    sampling = Sampling(temperature, seed=8)
    draw, target = make_sampler(sampling), ScriptedTarget()
    answer: list[int] = []
    for cut in cuts:
        list(target.prefill([7] * len(answer) + [1, 2, 3, *answer]))
        stop = StopCriteria(NEVER, cut)
        steps = decode(target, every_drafter(), fixed(6), draw, stop, answered=len(answer))
        answer += tokens(list(steps))
    assert answer == tokens(run([1, 2, 3], [], fixed(0), sampling, StopCriteria(NEVER, sum(cuts))))


def test_the_cache_holds_everything_but_the_last_token() -> None:
    target = ScriptedTarget()
    steps = run([1, 2, 3], every_drafter(), fixed(6), Sampling(0.0), target=target)
    assert target.tokens == [1, 2, 3, *tokens(steps)[:-1]]


def test_a_full_context_ends_the_answer() -> None:
    target = ScriptedTarget(context_length=20)
    steps = run([1] * 10, every_drafter(), fixed(6), Sampling(0.0), target=target)
    assert steps[-1].finish == "context"
    assert len(target.tokens) <= 20
    assert len(tokens(steps)) == 11


def test_a_stop_token_ends_the_answer_and_is_included() -> None:
    plain = tokens(run([1, 2, 3], [], fixed(0), Sampling(0.0)))
    stop = plain[30]
    first = plain.index(stop)
    steps = run(
        [1, 2, 3], every_drafter(), fixed(9), Sampling(0.0), StopCriteria(frozenset({stop}), 80)
    )
    assert tokens(steps) == plain[: first + 1]
    assert steps[-1].finish == "stop"


def test_steps_account_for_every_token() -> None:
    steps = run([1, 2, 3], every_drafter(), fixed(8), Sampling(0.0))
    position = 3
    for step in steps:
        assert step.position == position
        assert len(step.tokens) == len(step.path) == len(step.origins)
        assert step.hidden.shape == (len(step.tokens), 8)
        assert [top[0] for top in step.top_tokens] == [step.tokens[-1]]
        assert step.origins[-1] == 0 or step.finish
        position += len(step.tokens)
    assert steps[0].prefill
    assert not any(step.prefill for step in steps[1:])


def test_the_logits_of_chosen_positions_are_kept() -> None:
    target = ScriptedTarget()
    for _ in target.prefill([1, 2, 3]):
        pass
    draw = make_sampler(Sampling(0.0))
    asked: list[tuple[int, ...]] = []

    def keep(position: int, origins: Sequence[int]) -> tuple[list[int], Floats]:
        asked.append(tuple(origins))
        kept = [index for index in range(len(origins)) if (position + index) % 2]
        return kept, np.empty((len(kept), VOCABULARY), np.float32)

    steps = list(
        decode(target, every_drafter(), fixed(8), draw, StopCriteria(NEVER, 80), keep=keep)
    )
    assert any(step.accepted for step in steps)
    assert asked == [step.origins for step in steps]
    for step in steps:
        assert all((step.position + index) % 2 for index in step.kept)
        assert len(step.kept) == len(step.kept_logits)
        likeliest = step.kept_logits.argmax(1).tolist() if step.kept else []
        assert likeliest == [step.tokens[index] for index in step.kept]
    assert tokens(steps) == tokens(run([1, 2, 3], every_drafter(), fixed(8), Sampling(0.0)))


def test_closing_the_generator_leaves_a_cache_that_can_continue() -> None:
    target = ScriptedTarget()
    for _ in target.prefill([1, 2, 3]):
        pass
    draw = make_sampler(Sampling(0.0))
    stream = decode(target, every_drafter(), fixed(8), draw, StopCriteria(NEVER, 80))
    seen = [token for _ in range(5) for token in next(stream).tokens]
    stream.close()
    assert target.tokens == [1, 2, 3, *seen[:-1]]
    rest = run([1, 2, 3, *seen], [], fixed(0), Sampling(0.0), target=target)
    undisturbed = tokens(run([1, 2, 3], [], fixed(0), Sampling(0.0)))
    assert seen + tokens(rest)[: 80 - len(seen)] == undisturbed


class SlowObserver:
    """An observer that takes a second of virtual time for each step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps: list[Step] = []

    def begin(self, context: Context) -> None:
        """Nothing."""

    def observe(self, step: Step) -> None:
        """Advance the clock."""
        self.now += 1.0
        self.steps.append(step)


def test_time_of_observing_is_part_of_the_next_step_s(monkeypatch: pytest.MonkeyPatch) -> None:
    observer, costs = SlowObserver(), CostModel()
    monkeypatch.setattr(engines.decode, "perf_counter", lambda: observer.now)
    target = ScriptedTarget()
    list(target.prefill([1, 2, 3]))
    budget, draw = FixedBudget(0, costs, AcceptanceModel()), make_sampler(Sampling(0.0))
    steps = list(decode(target, [], budget, draw, LONG, observers=[observer]))
    assert observer.steps == steps
    assert observer.now == len(steps) == 80
    assert {(one.timings.draft, one.timings.total) for one in steps[1:]} == {(1.0, 1.0)}
    assert {one.timings.target for one in steps} == {0.0}
    assert costs.plain(3) == 0.0, "observing is no part of V(n, L)"
