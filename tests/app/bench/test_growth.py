"""Growth on the scripted engine: history makes drafts longer, and the comparison is with none."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bench.decode import TimedAnswer
from app.bench.environment import bench_stores
from app.bench.growth import WINDOW, Growth, Trial, grow, summarise_growth
from app.bench.report import growth_svg
from app.bench.workloads import Workload
from app.conversation.statistics import Statistics
from app.engine.engine import with_drafters
from engines.sampler import Sampling
from tests.app.scripted import scripted_engine

NAMES = ("crest", "dense")
SAME = [Workload(str(number), ("one",)) for number in range(4)]


def grown(folder: Path, workload: list[Workload]) -> Growth:
    engine = scripted_engine(folder, drafters=(), draft_tokens=0)
    with bench_stores(engine, NAMES) as stores:
        full = with_drafters(engine, NAMES, 8, stores.stores)
        growth = Growth("both", NAMES, full, with_drafters(engine, (), 8), stores)
        assert list(grow(growth, engine, workload, Sampling(0.0))) == [1, 2, 3, 4]
    return growth


def per_step(answers: list[TimedAnswer]) -> float:
    total = Statistics()
    for answer in answers:
        total.add(answer.statistics)
    return total.tokens_per_step


def test_a_question_asked_again_is_drafted_from_its_first_answer(tmp_path: Path) -> None:
    first, *later = grown(tmp_path, SAME).trials
    assert first.new
    assert per_step(first.full) == pytest.approx(per_step(first.empty), rel=0.2)
    for trial in later:
        assert not trial.new
        assert [one.tokens for one in trial.full] == [one.tokens for one in trial.plain]
        assert per_step(trial.full) > per_step(first.full)


def test_empty_stores_stay_empty(tmp_path: Path) -> None:
    """Without earlier chats each answer is drafted from itself alone, however late it comes."""
    trials = grown(tmp_path, SAME).trials
    alone = [per_step(trial.empty) for trial in trials]
    assert max(alone) == pytest.approx(min(alone), rel=0.2)
    assert per_step(trials[-1].full) > 1.2 * per_step(trials[-1].empty)


def trial(new: bool) -> Trial:
    def answers(steps: int, seconds: float) -> list[TimedAnswer]:
        counted = Statistics(steps=steps, step_tokens=60, decode_seconds=seconds)
        return [TimedAnswer((), (), 0, (), counted, "")]

    return Trial(new, full=answers(10, 1.0), empty=answers(20, 2.0), plain=answers(60, 4.0))


def test_windows_compare_the_same_chats(tmp_path: Path) -> None:
    growth = grown(tmp_path, SAME)
    growth.trials = [trial(new=True)] * WINDOW + [trial(new=False)] * 3
    windows = summarise_growth(growth)["windows"]
    common = {"tokens_per_step": 6.0, "tokens_per_step_empty": 3.0, "speedup": 4.0}
    common |= {"speedup_empty": 2.0, "total_speedup": 4.0, "total_speedup_empty": 2.0}
    assert windows == [
        {**common, "chats": WINDOW, "new": WINDOW, "tokens_per_step_new": 6.0},
        {**common, "chats": 3, "new": 0, "tokens_per_step_new": None},
    ]
    picture = growth_svg([summarise_growth(growth)])
    assert "both, new questions" in picture
