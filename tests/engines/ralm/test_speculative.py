"""RaLMSpec writes the text of RaLMSeq, whatever is guessed, drafted and overlapped."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastores.errors import StoreError
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.fixed import FixedBudget
from engines.decode import StopCriteria
from engines.drafters.protocol import Drafter
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import Query
from engines.ralm.scheduler import Choice, FixedStride, OptimalStride, StrideScheduler
from engines.ralm.sequential import write_iteratively
from engines.ralm.speculative import SpeculativeRalm
from engines.ralm.stride_writer import RalmRequest, StrideWriter, passage_id
from engines.retrieval.protocol import ScoredPassage
from engines.sampler import Sampling, make_sampler
from tests.engines.ralm.scripted import PassageTarget, ScriptedBase, prompt, query, text
from tests.engines.test_decode import RandomDrafter, every_drafter

NEVER = frozenset({-1})
ANSWER = 60


def request(temperature: float, stop: StopCriteria, seed: int = 5, stride: int = 4) -> RalmRequest:
    draw = make_sampler(Sampling(temperature, seed=seed))
    return RalmRequest(prompt, query, draw, stop, temperature, stride)


def writer(
    asked: RalmRequest, drafters: list[Drafter], target: PassageTarget, *, across: bool = False
) -> StrideWriter:
    budget = FixedBudget(6 if drafters else 0, CostModel(), AcceptanceModel())
    return StrideWriter(target, drafters, budget, asked, across=across)


def passages(strides: list[ConfirmedStride]) -> list[int | None]:
    return [passage_id(stride.passage) for stride in strides]


def sequential(
    asked: RalmRequest, base: ScriptedBase, drafters: list[Drafter], context_length: int = 512
) -> tuple[list[ConfirmedStride], RalmStatistics]:
    statistics = RalmStatistics()
    target = PassageTarget(context_length=context_length)
    return list(
        write_iteratively(writer(asked, drafters, target), base, asked, statistics)
    ), statistics


def speculative(
    asked: RalmRequest,
    base: ScriptedBase,
    drafters: list[Drafter],
    scheduler: StrideScheduler,
    *,
    prefetch: int,
    asynchronous: bool,
    across: bool = False,
    context_length: int = 512,
) -> tuple[list[ConfirmedStride], RalmStatistics]:
    statistics = RalmStatistics()
    target = PassageTarget(context_length=context_length)
    ralm = SpeculativeRalm(
        writer(asked, drafters, target, across=across),
        base,
        asked,
        scheduler,
        statistics,
        prefetch=prefetch,
        asynchronous=asynchronous,
    )
    strides = list(ralm.write())
    assert not target.parked, "no text stays parked after the answer"
    return strides, statistics


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("prefetches", "schedules", "asynchronous", "drafts", "across"),
    [one for one in product([False, True], repeat=5) if one[3] or not one[4]],
)
def test_the_text_is_that_of_ralm_seq(
    prefetches: bool,
    schedules: bool,
    asynchronous: bool,
    drafts: bool,
    across: bool,
    temperature: float,
) -> None:
    for seed in range(4):
        asked = request(temperature, StopCriteria(frozenset({9}), ANSWER), seed)
        plain, _ = sequential(asked, ScriptedBase(12), [])
        scheduler: StrideScheduler = (
            OptimalStride(asynchronous=asynchronous) if schedules else FixedStride(3)
        )
        written, _ = speculative(
            asked,
            ScriptedBase(12),
            every_drafter() if drafts else [],
            scheduler,
            prefetch=4 if prefetches else 1,
            asynchronous=asynchronous,
            across=across,
        )
        assert text(written) == text(plain)
        assert passages(written) == passages(plain)
        assert [stride.finish for stride in written] == [stride.finish for stride in plain]


@given(
    seed=st.integers(0, 2**32),
    size=st.integers(0, 8),
    matching=st.sampled_from([0.2, 0.7, 1.0]),
    stride=st.integers(1, 6),
    ahead=st.integers(0, 9),
    prefetch=st.integers(1, 9),
    asynchronous=st.booleans(),
    reads_ahead=st.booleans(),
    across=st.booleans(),
    drafts=st.booleans(),
    limit=st.integers(1, 70),
    context_length=st.sampled_from([24, 40, 512]),
)
@settings(max_examples=150)
def test_any_base_any_stride_and_any_end(
    seed: int,
    size: int,
    matching: float,
    stride: int,
    ahead: int,
    prefetch: int,
    asynchronous: bool,
    reads_ahead: bool,
    across: bool,
    drafts: bool,
    limit: int,
    context_length: int,
) -> None:
    asked = request(0.9, StopCriteria(frozenset({9}), limit), seed, stride)
    base = ScriptedBase(size, matching=matching)
    plain, _ = sequential(asked, base, [], context_length)
    scheduler = FixedStride(ahead)
    scheduler.choice = Choice(ahead, reads_ahead=reads_ahead)
    written, statistics = speculative(
        asked,
        base,
        [RandomDrafter(seed), *every_drafter()] if drafts else [],
        scheduler,
        prefetch=prefetch,
        asynchronous=asynchronous,
        across=across,
        context_length=context_length,
    )
    assert text(written) == text(plain)
    assert passages(written) == passages(plain)
    assert [one.finish for one in written] == [one.finish for one in plain]
    wrong = statistics.guesses - statistics.right
    assert statistics.rollbacks <= wrong * bool(ahead)
    assert statistics.rollbacks == wrong or not (ahead and reads_ahead)


def test_drafts_change_nothing_in_ralm_seq() -> None:
    asked = request(0.8, StopCriteria(NEVER, ANSWER))
    plain, plainly = sequential(asked, ScriptedBase(12), [])
    drafted, with_drafts = sequential(asked, ScriptedBase(12), every_drafter())
    assert text(drafted) == text(plain)
    assert len(text(plain)) == ANSWER
    assert with_drafts.passes < plainly.passes


def test_the_true_passage_changes_and_guesses_are_right_and_wrong() -> None:
    asked = request(0.8, StopCriteria(NEVER, ANSWER))
    base = ScriptedBase(12)
    strides, statistics = speculative(
        asked, base, [], FixedStride(3), prefetch=2, asynchronous=False
    )
    changed = [one != other for one, other in pairwise(passages(strides))]
    assert statistics.strides == ANSWER / 4
    assert statistics.changes == sum(changed) > 3
    assert 0 < statistics.rollbacks < statistics.guesses
    assert statistics.right == statistics.guesses - statistics.rollbacks
    assert statistics.searches == len(base.batches) < statistics.strides
    assert statistics.queries == sum(base.batches)


def test_right_guesses_need_no_search_of_their_own() -> None:
    asked = request(0.0, StopCriteria(NEVER, 64))
    base = ScriptedBase(1)
    _, statistics = speculative(asked, base, [], FixedStride(5), prefetch=1, asynchronous=False)
    assert base.batches == [1, 5, 5, 5]
    assert (statistics.rollbacks, statistics.changes, statistics.discarded) == (0, 0, 0)
    assert statistics.prefills == 1, "one passage is read once"


def test_drafts_that_reach_beyond_a_stride_save_passes() -> None:
    asked = request(0.0, StopCriteria(NEVER, 128))
    passes = [
        speculative(
            asked,
            ScriptedBase(1),
            every_drafter(),
            FixedStride(3),
            prefetch=1,
            asynchronous=False,
            across=across,
        )[1].passes
        for across in (False, True)
    ]
    assert passes[1] < passes[0]


def test_searching_first_takes_as_many_searches_as_ralm_seq() -> None:
    asked = request(0.8, StopCriteria(NEVER, ANSWER))
    plain, plainly = sequential(asked, ScriptedBase(12), [])
    for guesses in (False, True):
        base, scheduler = ScriptedBase(12), FixedStride(0)
        scheduler.choice = Choice(0, guesses=guesses)
        strides, statistics = speculative(
            asked, base, [], scheduler, prefetch=5, asynchronous=False
        )
        assert base.batches == [1] * 15
        assert statistics.rollbacks == statistics.discarded == 0
        assert statistics.guesses == (14 if guesses else 0)
        assert bool(statistics.lookup_s) == guesses
        assert text(strides) == text(plain)
        assert passages(strides) == passages(plain)
        assert statistics.prefills == plainly.prefills


def test_uncertain_passages_are_not_read_ahead() -> None:
    asked = request(0.8, StopCriteria(NEVER, 128))
    plain, plainly = sequential(asked, ScriptedBase(12), [])
    read, searches = [], []
    for reads_ahead in (False, True):
        scheduler = FixedStride(3)
        scheduler.choice = Choice(3, reads_ahead=reads_ahead)
        strides, statistics = speculative(
            asked, ScriptedBase(12), [], scheduler, prefetch=4, asynchronous=False
        )
        assert text(strides) == text(plain)
        read.append(statistics.prefills)
        searches.append(statistics.searches)
    assert read[0] < read[1]
    assert searches[1] < searches[0] < plainly.searches


class BrokenBase(ScriptedBase):
    """Fails at the second search and after."""

    def search(self, queries: list[Query], limit: int) -> list[list[ScoredPassage]]:  # type: ignore[override]
        if self.batches:
            raise StoreError("the passages cannot be read")
        return super().search(queries, limit)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_base_that_fails_ends_the_answer_with_its_error(asynchronous: bool) -> None:
    asked = request(0.0, StopCriteria(NEVER, ANSWER))
    with pytest.raises(StoreError, match="cannot be read"):
        speculative(
            asked, BrokenBase(3), [], FixedStride(3), prefetch=20, asynchronous=asynchronous
        )


class Recording(FixedStride):
    """Counts answers and strides."""

    def __init__(self) -> None:
        super().__init__(3)
        self.begun = self.timed = 0

    def begin(self) -> None:
        self.begun += 1

    def wrote(self, seconds: float, *, new: bool) -> None:
        self.timed += 1


def test_the_scheduler_learns_of_answers_and_whole_strides() -> None:
    scheduler = Recording()
    for number in (1, 2):
        asked = request(0.0, StopCriteria(frozenset({-1}), 10))
        strides, statistics = speculative(
            asked, ScriptedBase(1), [], scheduler, prefetch=1, asynchronous=False
        )
        assert len(text(strides)) == 10
        assert not statistics.rollbacks
        assert (scheduler.begun, scheduler.timed) == (number, 2 * number)


def test_closing_it_early_leaves_no_parked_text() -> None:
    asked = request(0.0, StopCriteria(NEVER, ANSWER))
    target = PassageTarget()
    strides = SpeculativeRalm(
        writer(asked, [], target), ScriptedBase(12), asked, FixedStride(2), RalmStatistics()
    ).write()
    confirmed = [next(strides) for _ in range(5)]
    strides.close()
    assert len(text(confirmed)) == 20
    assert not target.parked


def test_a_passage_that_the_cache_dropped_has_to_be_read_again() -> None:
    asked, target = request(0.0, StopCriteria(NEVER, ANSWER)), PassageTarget()
    first, second = ScriptedBase(2).search([Query("any")], 2)[0]
    writing = writer(asked, [], target)
    writing.write(first.passage, 0, 4)
    writing.write(second.passage, 4, 8)
    assert writing.has_read(first.passage)
    assert writing.has_read(second.passage)
    target.drop_parked()
    assert not writing.has_read(first.passage)
    assert writing.has_read(second.passage)
