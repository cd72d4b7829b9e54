"""KNN-LM: speculation and drafts change no token, and the distribution is the formula's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.dense.flat_keys import FlatKeys, StateMatches
from datastores.dense.projection import Floats, fit
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.decode import StopCriteria
from engines.drafters.protocol import Drafter
from engines.ralm import knn_speculative
from engines.ralm.contributions import Contributions
from engines.ralm.events import RalmStatistics
from engines.ralm.knn_lm import InterpolatedTarget, Interpolation, write_sequentially
from engines.ralm.knn_speculative import SpeculativeKnn
from engines.ralm.scheduler import Choice, FixedStride, OptimalStride, StrideScheduler, Verification
from engines.ralm.stride_writer import RalmRequest, StrideWriter
from engines.sampler import Sampling, make_sampler
from engines.step import Step
from tests.engines.scripted import ScriptedTarget
from tests.engines.test_decode import RandomDrafter, every_drafter, fixed, run, tokens

NEVER = frozenset({-1})
PROMPT = [1, 2, 3]
HALF = Interpolation(weight=0.5, temperature=0.5, neighbours=8)
TEXT = [token * token % 61 for token in range(600)]


def datastore(text: list[int] = TEXT) -> FlatKeys:
    """The states of a text that the scripted model read, with the tokens that followed."""
    target = ScriptedTarget()
    states = np.concatenate([_state(target, token) for token in text])
    projection = fit(states)
    led_to = np.array([*text[1:], 0], np.int32)
    offsets = np.arange(len(text), dtype=np.int64)
    return FlatKeys(projection, projection.encode(states), offsets, lambda where: led_to[where])


def _state(target: ScriptedTarget, token: int) -> Floats:
    for _ in target.prefill([token]):
        pass
    return target.last_row.hidden


STORE = datastore()


@pytest.fixture(autouse=True, scope="module")
def few_are_cached() -> Iterator[None]:
    """Cache so few of the store's 61 different states that some guesses are wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn_speculative, "CACHED", 8)
        yield


def asked(temperature: float, stop: StopCriteria, seed: int = 5) -> RalmRequest:
    sampling = Sampling(temperature, seed=seed, repeat_penalty=1.1)
    draw = make_sampler(sampling)
    return RalmRequest(lambda _: PROMPT, lambda _: "", draw, stop, temperature)


def write(
    request: RalmRequest,
    drafters: list[Drafter],
    scheduler: StrideScheduler | None,
    *,
    store: FlatKeys = STORE,
    interpolation: Interpolation = HALF,
    context_length: int = 512,
) -> tuple[list[Step], RalmStatistics, str]:
    """The steps of an answer (sequential if there is no scheduler), and why it ended."""
    steps, statistics, writer, _ = run_knn(
        request,
        drafters,
        scheduler,
        store=store,
        interpolation=interpolation,
        context_length=context_length,
    )
    return steps, statistics, writer.finish


def run_knn(
    request: RalmRequest,
    drafters: list[Drafter],
    scheduler: StrideScheduler | None,
    *,
    store: FlatKeys = STORE,
    interpolation: Interpolation = HALF,
    context_length: int = 512,
) -> tuple[list[Step], RalmStatistics, StrideWriter, Contributions]:
    """As `write`, with the writer and what contributed."""
    scripted = ScriptedTarget(context_length=context_length)
    target = InterpolatedTarget(scripted, store, interpolation)
    budget = FixedBudget(6 if drafters else 0, CostModel(), AcceptanceModel())
    writer = StrideWriter(target, drafters, budget, request, across=True)
    statistics = RalmStatistics()
    if scheduler is None:
        steps = write_sequentially(writer, target, statistics)
    else:
        steps = SpeculativeKnn(
            writer, target, store, interpolation, request, scheduler, statistics
        ).write()
    return list(steps), statistics, writer, target.contributions


class Wavering(FixedStride):
    """Alternates between guessing and not guessing, for three searches each."""

    def __init__(self) -> None:
        super().__init__(4)
        self.searches = self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def verified(self, verification: Verification) -> None:
        assert bool(verification.new) == self.choice.guesses == (verification.lookup_s > 0)
        self.searches += 1
        self.choice = Choice(4, guesses=self.searches // 3 % 2 == 0)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize(
    "make_scheduler",
    [
        lambda: FixedStride(3),
        lambda: FixedStride(8),
        Wavering,
        lambda: OptimalStride(asynchronous=False),
    ],
)
def test_the_text_is_that_of_one_search_for_each_token(
    make_scheduler: Callable[[], StrideScheduler], drafts: bool, temperature: float
) -> None:
    for seed in range(4):
        request = asked(temperature, StopCriteria(frozenset({9}), 60), seed)
        expected, _, ended = write(request, [], None)
        drafters = every_drafter() if drafts else []
        written, statistics, finish = write(request, drafters, make_scheduler())
        assert tokens(written) == tokens(expected)
        assert written[-1].finish == expected[-1].finish == finish == ended
        assert statistics.queries >= len(tokens(expected))


@given(
    seed=st.integers(0, 2**32),
    ahead=st.integers(1, 9),
    neighbours=st.sampled_from([1, 4, 600]),
    weight=st.sampled_from([0.1, 0.5, 0.9]),
    drafts=st.booleans(),
    limit=st.integers(1, 60),
    context_length=st.sampled_from([16, 40, 512]),
)
@settings(max_examples=60, deadline=None)
def test_any_stride_any_weight_and_any_end(
    seed: int,
    ahead: int,
    neighbours: int,
    weight: float,
    drafts: bool,
    limit: int,
    context_length: int,
) -> None:
    request = asked(0.9, StopCriteria(frozenset({9}), limit), seed)
    interpolation = Interpolation(weight, 0.5, neighbours)
    drafters: list[Drafter] = [RandomDrafter(seed), *every_drafter()] if drafts else []
    texts = [
        write(
            request,
            drafters if scheduler else [],
            scheduler,
            interpolation=interpolation,
            context_length=context_length,
        )
        for scheduler in (None, FixedStride(ahead))
    ]
    (expected, _, ended), (written, statistics, finish) = texts
    assert tokens(written) == tokens(expected)
    assert finish == ended == written[-1].finish
    assert statistics.rollbacks == statistics.guesses - statistics.right


@pytest.mark.parametrize("ahead", [1, 3, 8])
def test_a_corrected_token_that_completes_a_stop_text_ends_the_answer(ahead: int) -> None:
    rollbacks = 0
    for seed in range(12):
        never = asked(0.9, StopCriteria(NEVER, 40), seed)
        whole = tokens(write(never, [], None)[0])
        for length in (8, 9, 10, 11):
            pair = whole[length - 2 : length]

            def ends(context: Sequence[int], start: int, pair: list[int] = pair) -> str:
                return "stop" if list(context[start:][-2:]) == pair else ""

            request = asked(0.9, StopCriteria(NEVER, 40, ends), seed)
            expected, _, _ = write(request, [], None)
            written, statistics, finish = write(request, [], FixedStride(ahead))
            assert tokens(written) == tokens(expected)
            assert finish == written[-1].finish == expected[-1].finish == "stop"
            rollbacks += statistics.rollbacks
    assert rollbacks


def test_drafts_change_nothing_and_are_searched_for_in_one_batch() -> None:
    request = asked(0.8, StopCriteria(NEVER, 60))
    plain, one_by_one, _ = write(request, [], None)
    drafted, batched, _ = write(request, every_drafter(), None)
    assert tokens(drafted) == tokens(plain)
    assert one_by_one.searches == one_by_one.queries == 60
    assert batched.searches == len(drafted) < 60
    assert batched.queries > batched.searches


def test_speculation_is_right_and_wrong_and_saves_searches() -> None:
    request = asked(0.8, StopCriteria(NEVER, 60))
    written, statistics, _ = write(request, [], FixedStride(4))
    assert 0 < statistics.rollbacks < statistics.right
    assert statistics.searches < 60
    assert statistics.strides == len(tokens(written)) == 60
    passes = [step for step in written if not step.prefill]
    assert len(passes) == 59, "only the first token came from the prefill"
    assert all(step.timings.total > 0 for step in passes)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize(
    "make_scheduler",
    [lambda: None, lambda: FixedStride(6), lambda: OptimalStride(asynchronous=False)],
)
def test_states_contribute_the_same_however_the_text_is_written(
    make_scheduler: Callable[[], StrideScheduler | None], drafts: bool, temperature: float
) -> None:
    request = asked(temperature, StopCriteria(frozenset({9}), 60))
    _, _, plain, expected = run_knn(request, [], None)
    drafters = every_drafter() if drafts else []
    _, _, _, contributions = run_knn(request, drafters, make_scheduler())
    rows, weights = contributions.totals()
    assert rows.tolist() == expected.totals()[0].tolist()
    assert weights == pytest.approx(expected.totals()[1])
    assert 0 < weights.sum() < len(plain.tokens)
    assert {TEXT[row + 1] for row in rows} <= set(plain.tokens)


def test_a_token_came_from_the_neighbours_that_led_to_it() -> None:
    row = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    model = np.exp(row) / np.exp(row).sum()
    matches = StateMatches(
        np.array([7, 4, 9]), np.array([0.2, 0.4, 0.6]), np.array([1, 3, 1], np.int32)
    )
    contributions = Contributions()
    mixed = Interpolation(0.3, 0.5, 3).apply(row, matches)
    for token in (1, 1, 2):
        contributions.add(mixed, token)
    rows, weights = contributions.totals()
    near, far, other = (exp(-distance / 0.5) for distance in (0.2, 0.6, 0.4))
    neighbours = 0.3 * (near + far) / (near + far + other)
    came = neighbours / (0.7 * model[1] + neighbours)
    assert rows.tolist() == [7, 9]
    assert weights == pytest.approx([2 * came * one / (near + far) for one in (near, far)])


def test_without_guesses_it_searches_as_often_as_knn_lm() -> None:
    request = asked(0.8, StopCriteria(NEVER, 60))
    scheduler = FixedStride(4)
    scheduler.choice = Choice(4, guesses=False)
    written, statistics, _ = write(request, [], scheduler)
    assert tokens(written) == tokens(write(request, [], None)[0])
    assert (statistics.searches, statistics.queries, statistics.guesses) == (60, 60, 0)
    assert statistics.search_s > 0


def test_neighbours_change_the_answer_and_without_weight_nothing() -> None:
    ending = StopCriteria(NEVER, 60)
    request = asked(0.8, ending)
    plain = run(PROMPT, [], fixed(0), Sampling(0.8, seed=5, repeat_penalty=1.1), ending)
    for scheduler in (None, FixedStride(3)):
        unweighted = Interpolation(0.0, 0.5, 8)
        written, _, _ = write(request, [], scheduler, interpolation=unweighted)
        assert tokens(written) == tokens(plain)
    assert tokens(write(request, [], None)[0]) != tokens(plain)


def test_logits_are_those_of_the_formula() -> None:
    row = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    distances, led_to = np.array([0.2, 0.4, 0.4]), np.array([1, 3, 1], np.int32)
    matches = StateMatches(np.arange(3), distances, led_to)
    model = np.exp(row) / np.exp(row).sum()
    masses = {1: exp(-0.2 / 0.5) + exp(-0.4 / 0.5), 3: exp(-0.4 / 0.5)}
    expected = [
        log(0.7 * model[token] + 0.3 * masses.get(token, 0.0) / sum(masses.values()))
        for token in range(4)
    ]
    changed = row.copy()
    Interpolation(0.3, 0.5, 3).apply(changed, matches)
    normalised = changed - np.log(np.exp(changed).sum())
    assert normalised == pytest.approx(expected, abs=1e-6)


def test_an_empty_datastore_changes_nothing() -> None:
    empty = FlatKeys(
        fit(np.eye(8, dtype=np.float32)),
        np.zeros((0, 8), np.uint8),
        np.zeros(0, np.int64),
        lambda where: np.zeros(len(where), np.int32),
    )
    ending = StopCriteria(NEVER, 30)
    request = asked(0.0, ending)
    plain = run(PROMPT, [], fixed(0), Sampling(0.0, repeat_penalty=1.1), ending)
    for scheduler in (None, FixedStride(3)):
        assert tokens(write(request, [], scheduler, store=empty)[0]) == tokens(plain)


def test_the_scheduler_is_told_that_an_answer_begins() -> None:
    scheduler = Wavering()
    for answers in (1, 2):
        write(asked(0.0, StopCriteria(NEVER, 20)), [], scheduler)
        assert scheduler.begun == answers
