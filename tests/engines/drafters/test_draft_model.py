"""The draft model proposes its own continuation, follows the context, and changes no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.errors import InputError, ModelError
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria, decode
from engines.draft_tree import DRAFT_MODEL, DraftTree
from engines.drafters import model_drafter
from engines.drafters.draft_model import (
    MAX_EXTRA_TOKENS,
    DraftModel,
    DraftModelDrafter,
    require_same_vocabulary,
)
from engines.drafters.model_drafter import CHAIN_TOKENS, UNMEASURED_PRICE
from engines.drafters.prompt_lookup import PromptLookup
from engines.llama.model import LlamaModel, load
from engines.sampler import Sampling, draw_gap, greedy, make_sampler
from engines.step import Context, Step
from engines.target import ForwardOutput, Target
from tests.app.scripted import ScriptedVocabulary
from tests.engines.conftest import EMBEDDED, THREADS
from tests.engines.scripted import VOCABULARY, ScriptedTarget, logits_after
from tests.engines.test_decode import LONG, NEVER, fixed, run, tokens

PROMPT = [3, 9, 14, 3]


def drafter(model: Target | None = None, stops: frozenset[int] = NEVER) -> DraftModelDrafter:
    return DraftModelDrafter(DraftModel(model or ScriptedTarget(), stops))


def proposed(one: DraftModelDrafter, tokens: list[int], limit: int = 8) -> DraftTree:
    context = Context(tokens, np.zeros(4, np.float32), 0.0)
    one.begin(context)
    return one.propose(context, limit)


def greedy_chain(after: int, count: int) -> list[int]:
    """The scripted model's greedy continuation of a token."""
    found = [after]
    for _ in range(count):
        found.append(int(np.argmax(logits_after((found[-1],), 8.0))))
    return found[1:]


def probability(previous: int, token: int) -> float:
    odds = np.exp(np.array(logits_after((previous,), 8.0), np.float64))
    return float(odds[token] / odds.sum())


def paths(tree: DraftTree) -> list[float]:
    found = [1.0]
    for parent, share in zip(tree.parents[1:], tree.probabilities[1:], strict=True):
        found.append(found[parent] * share)
    return found


def test_it_drafts_the_model_s_continuation_with_its_probabilities() -> None:
    tree = proposed(drafter(), PROMPT, 30)
    deepest = max(range(len(tree)), key=tree.depths().__getitem__)
    chain = []
    while deepest:
        chain.append(tree.tokens[deepest])
        deepest = tree.parents[deepest]
    assert chain[::-1] == greedy_chain(3, len(chain))
    assert len(chain) > 2
    assert set(tree.origins[1:]) == {DRAFT_MODEL}
    for row in range(1, len(tree)):
        previous = tree.tokens[tree.parents[row]]
        assert tree.probabilities[row] == pytest.approx(probability(previous, tree.tokens[row]))


def test_the_next_candidates_are_branches_and_the_likeliest_rows_come_first() -> None:
    model = ScriptedTarget(sharpness=1.5)
    whole = proposed(drafter(model), PROMPT, 30)
    assert not whole.is_chain()
    assert paths(whole) == sorted(paths(whole), reverse=True)
    few = proposed(drafter(model), PROMPT, 3)
    assert few.tokens == whole.tokens[:4]


def test_it_ends_where_its_own_path_is_not_worth_another_pass() -> None:
    flat = ScriptedTarget(sharpness=0.8)
    tree = proposed(drafter(flat), PROMPT, 30)
    extended = {parent for parent in tree.parents if parent > 0}
    assert all(paths(tree)[row] > UNMEASURED_PRICE for row in extended)
    assert max(tree.depths()) < 5


def test_it_drafts_less_where_rows_are_dear_to_verify() -> None:
    flat, depths = ScriptedTarget(sharpness=1.5), []
    for price in (0.0, 0.3):
        context = Context(PROMPT, np.zeros(4, np.float32), 0.0, row_price=price)
        tree = drafter(flat).propose(context, 30)
        extended = {parent for parent in tree.parents if parent > 0}
        assert all(paths(tree)[row] > UNMEASURED_PRICE + price for row in extended)
        depths.append(max(tree.depths()))
    assert depths[1] < depths[0]


def test_it_drafts_nothing_after_the_end_of_an_answer() -> None:
    first, second, *_ = greedy_chain(3, 3)
    tree = proposed(drafter(stops=frozenset({second})), PROMPT, 30)
    assert second in tree.tokens
    assert all(tree.tokens[parent] != second for parent in tree.parents[1:])
    assert first in tree.tokens


@pytest.mark.parametrize(("room", "depth"), [(0, 0), (1, 1), (2, 2), (-2, 0)])
def test_a_draft_model_with_a_short_context_drafts_what_fits(room: int, depth: int) -> None:
    model = ScriptedTarget(context_length=len(PROMPT) + room)
    assert max(proposed(drafter(model), PROMPT, 3).depths()) == depth


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_draft_model_as_good_as_its_target_is_never_rejected(temperature: float) -> None:
    """At any temperature, as both draw with the same noise: each draft is followed to its end."""
    sampling = Sampling(temperature, top_k=0, top_p=1.0, min_p=0.0, seed=4)
    steps = run(PROMPT, [drafter()], fixed(5), sampling)
    assert tokens(steps) == tokens(run(PROMPT, [], fixed(0), sampling))
    drafted = [step for step in steps[:-1] if step.drafted]
    assert drafted
    assert all(step.accepted == max(step.tree.depths()) for step in drafted)


@given(
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40),
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    penalty=st.sampled_from([1.0, 1.3]),
    count=st.integers(0, 12),
    limit=st.integers(1, 60),
    sharpness=st.sampled_from([8.0, 7.0, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_it_changes_no_answer(
    prompt: list[int],
    seed: int,
    temperature: float,
    penalty: float,
    count: int,
    limit: int,
    sharpness: float,
) -> None:
    sampling = Sampling(temperature, seed=seed, repeat_penalty=penalty)
    ending = StopCriteria(frozenset({9}), limit)
    one = drafter(ScriptedTarget(sharpness=sharpness), ending.stops)
    for text in (prompt, prompt[: len(prompt) // 2 + 1], [*prompt, 5, 6], [7, *prompt]):
        plain = run(text, [], fixed(0), sampling, ending)
        drafted = run(text, [PromptLookup(), one], fixed(count), sampling, ending)
        assert tokens(drafted) == tokens(plain)
        assert drafted[-1].finish == plain[-1].finish


class PartlyWrong(ScriptedTarget):
    """A draft model that agrees with the scripted target after two tokens of three."""

    def _rows(self, suffixes: list[tuple[int, ...]]) -> ForwardOutput:
        other = [suffix if suffix[-1] % 3 else (suffix[-1], 1) for suffix in suffixes]
        return super()._rows(other)


class CheckedDraftModel(DraftModelDrafter):
    """Asserts that the cache holds the context after each proposal, and nothing rejected."""

    def __init__(self, draft_model: DraftModel) -> None:
        super().__init__(draft_model)
        self._target = draft_model.model

    def propose(self, context: Context, limit: int) -> DraftTree:
        """Propose, and look into the cache."""
        tree = super().propose(context, limit)
        cached = list(self._target.tokens)
        assert cached[: len(context.tokens)] == context.tokens
        assert len(cached) < len(context.tokens) + limit
        return tree


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_its_cache_follows_accept_rewind_and_a_changed_prompt(temperature: float) -> None:
    sampling = Sampling(temperature, seed=3)
    one = CheckedDraftModel(DraftModel(PartlyWrong(), NEVER))
    for prompt in ([1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9, 9], [8] * 12, [8]):
        steps = run(prompt, [one], fixed(6), sampling)
        assert tokens(steps) == tokens(run(prompt, [], fixed(0), sampling))
        rejected = [step for step in steps if step.accepted < max(step.tree.depths())]
        assert rejected
        assert any(step.accepted for step in steps)


def test_a_full_context_ends_the_answer_as_without_it() -> None:
    for room in (0, 4):
        one = drafter(ScriptedTarget(context_length=20 + room))
        target = ScriptedTarget(context_length=20)
        steps = run([1] * 10, [one], fixed(6), Sampling(0.0), target=target)
        assert steps[-1].finish == "context"
        assert len(tokens(steps)) == 11


def test_nothing_is_read_before_the_first_token_is_shown() -> None:
    target, model = ScriptedTarget(), ScriptedTarget()
    list(target.prefill([1] * 300))
    stream = decode(target, [drafter(model)], fixed(4), greedy, LONG)
    assert next(stream).prefill
    assert model.tokens == []
    next(stream)
    assert model.tokens
    stream.close()


class Clock:
    """A clock that only the draft model advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowReader(ScriptedTarget):
    """A draft model that takes 2 ms to read a token; keeps how much was read at a time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(context_length=4000)
        self._clock = clock
        self.read: list[int] = []

    def prefill(self, tokens: Sequence[int]) -> Iterator[int]:
        """Read, and advance the clock."""
        self.read.append(len(tokens) - len(self.tokens))
        self._clock.now += 0.002 * self.read[-1]
        return super().prefill(tokens)


def test_a_long_prompt_is_read_within_what_was_earned(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(model_drafter, "perf_counter", clock)
    monkeypatch.setattr("engines.decode.perf_counter", clock)
    model = SlowReader(clock)
    target = ScriptedTarget(context_length=4000)

    def verify(tree: DraftTree) -> object:
        clock.now += 0.100
        return ScriptedTarget.verify(target, tree)

    monkeypatch.setattr(target, "verify", verify)
    prompt = [number % 60 for number in range(400)]
    steps = run(prompt, [drafter(model)], fixed(4), Sampling(0.0), StopCriteria(NEVER, 500), target)
    assert sum(model.read) + CHAIN_TOKENS >= len(prompt)
    assert max(step.timings.draft for step in steps) < 0.1 + 0.002 * CHAIN_TOKENS
    without = next(index for index, step in enumerate(steps) if step.drafted)
    assert len(model.read) >= without > 5, "the answer went on meanwhile"
    assert any(step.accepted for step in steps)


def test_a_token_the_draft_model_does_not_know_ends_its_drafts_alone() -> None:
    model = ScriptedTarget()
    model.vocabulary_size = 10
    assert proposed(drafter(model), [1, 2, 30]).drafted == 0
    assert proposed(drafter(model), [1, 2, 3]).drafted > 0


class Broken(ScriptedTarget):
    """Cannot be evaluated."""

    def verify(self, tree: DraftTree) -> NoReturn:
        raise ModelError("llama.cpp could not evaluate 1 tokens (status 1)")


class NotNumbers(ScriptedTarget):
    """Its weights are damaged."""

    def verify(self, tree: DraftTree) -> ForwardOutput:
        output = super().verify(tree)
        return replace(output, logits=np.full_like(output.logits, np.nan))


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Broken, "llama.cpp could not"), (NotNumbers, "its weights are damaged")],
)
def test_a_draft_model_that_fails_is_named_once_and_the_answer_goes_on(
    model: type[ScriptedTarget], reason: str
) -> None:
    one = drafter(model())
    steps = run(PROMPT, [one], fixed(4), Sampling(0.0))
    assert tokens(steps) == tokens(run(PROMPT, [], fixed(0), Sampling(0.0)))
    assert f"continuing without the draft model: {reason}" in str(one.error)


class Words(ScriptedVocabulary):
    """A vocabulary of `size` tokens, of which `changed` is written in another way."""

    def __init__(self, size: int, changed: int = -1) -> None:
        self.size = size
        self._changed = changed

    def text(self, token: int) -> str:
        """Its number."""
        return "other" if token == self._changed else f"t{token}"


def test_another_vocabulary_is_refused_with_the_first_token_that_differs() -> None:
    require_same_vocabulary(Words(500), Words(500))
    require_same_vocabulary(Words(500), Words(500 + MAX_EXTRA_TOKENS))
    with pytest.raises(InputError, match=r"different tokens \(number 7 is the first\)"):
        require_same_vocabulary(Words(500, 7), Words(500))
    with pytest.raises(InputError, match=r"different tokens \(number 500 is"):
        require_same_vocabulary(Words(700), Words(500))


@pytest.fixture(scope="module")
def small() -> LlamaModel:
    """The embedded draft model."""
    path = EMBEDDED.with_name("draft-model-f16.gguf")
    return load(path, threads=THREADS, gpu_layers=0, context_length=512)


QUESTIONS = ("how do I list files by size?", "how do I unpack a tar file?", "what is sed?")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_embedded_pair_answers_as_the_target_alone(
    model: LlamaModel, small: LlamaModel, temperature: float
) -> None:
    """Three questions after each other; a fork must be a near tie."""
    sampling = Sampling(temperature, seed=11)
    stops = model.vocabulary.stops
    one = DraftModelDrafter(DraftModel(small.target, stops))
    calls = emitted = 0
    for question in QUESTIONS:
        prompt = model.render([Message("user", question)])
        answers = []
        for drafters, count in (([], 0), ([one], 7)):
            list(model.target.prefill(prompt))
            draw, ending = make_sampler(sampling), StopCriteria(stops, 48)
            steps: list[Step] = list(decode(model.target, drafters, fixed(count), draw, ending))
            answers.append(tokens(steps))
        calls, emitted = calls + len(steps) - 1, emitted + len(answers[1]) - 1
        _require_near_tie(model, sampling, prompt, *answers)
    assert emitted > 1.5 * calls


def _require_near_tie(
    model: LlamaModel, sampling: Sampling, prompt: list[int], one: list[int], other: list[int]
) -> None:
    pairs = zip(one, other, strict=False)
    fork = next((index for index, (left, right) in enumerate(pairs) if left != right), None)
    if fork is None:
        assert one == other
        return
    context = [*prompt, *one[:fork]]
    list(model.target.prefill(context))
    assert draw_gap(sampling, model.target.last_row.logits[0], fork, context) < 0.05
