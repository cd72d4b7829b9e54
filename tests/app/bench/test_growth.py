"""Growth on the scripted engine: history makes drafts longer, and the comparison is with none."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.bench.decode import DecodeRow, TimedAnswer, total_statistics
from app.bench.environment import bench_stores
from app.bench.growth import WINDOW, Growth, grow, summarise_growth
from app.bench.report import growth_svg
from app.bench.workloads import Workload
from app.conversation.statistics import Statistics
from app.engine.loading import with_drafters
from engines.sampler import Sampling
from tests.app.scripted import scripted_engine

NAMES = ("crest", "dense")
SAME = [Workload(str(number), ("one",)) for number in range(4)]


def grown(folder: Path, workload: list[Workload]) -> Growth:
    engine = scripted_engine(folder, drafters=(), draft_tokens=0)
    with bench_stores(engine, NAMES) as stores:
        full = DecodeRow("both", with_drafters(engine, NAMES, 8, stores.resources))
        empty = DecodeRow("both", with_drafters(engine, (), 8))
        growth = Growth(NAMES, stores, full, empty, DecodeRow("none", engine))
        assert list(grow(growth, workload, Sampling(0.0))) == [1, 2, 3, 4]
    return growth


def per_step(row: DecodeRow) -> list[float]:
    return [total_statistics(chat).tokens_per_step for chat in row.chats]


def test_a_question_asked_again_is_drafted_from_its_first_answer(tmp_path: Path) -> None:
    growth = grown(tmp_path, SAME)
    assert growth.new == [True, False, False, False]
    first, *later = per_step(growth.full)
    assert first == pytest.approx(per_step(growth.empty)[0], rel=0.2)
    assert min(later) > first
    full, plain = growth.full.answers(), growth.plain.answers()
    assert [answer.tokens for answer in full] == [answer.tokens for answer in plain]


def test_empty_stores_stay_empty(tmp_path: Path) -> None:
    """Without earlier chats each answer is drafted from itself alone, however late it comes."""
    growth = grown(tmp_path, SAME)
    alone = per_step(growth.empty)
    assert max(alone) == pytest.approx(min(alone), rel=0.2)
    assert per_step(growth.full)[-1] > 1.2 * alone[-1]


def answers(steps: int, seconds: float) -> list[TimedAnswer]:
    counted = Statistics(steps=steps, step_tokens=60, decode_seconds=seconds)
    return [TimedAnswer((), (), 0, (), counted, "")]


def test_windows_compare_the_same_chats(tmp_path: Path) -> None:
    growth = grown(tmp_path, SAME)
    growth.new = [True] * WINDOW + [False] * 3
    growth.full.chats = [answers(10, 1.0)] * len(growth.new)
    growth.empty.chats = [answers(20, 2.0)] * len(growth.new)
    growth.plain.chats = [answers(60, 4.0)] * len(growth.new)
    windows = summarise_growth(growth)["windows"]
    common = {"tokens_per_step": 6.0, "tokens_per_step_empty": 3.0, "speedup": 4.0}
    common |= {"speedup_empty": 2.0, "total_speedup": 4.0, "total_speedup_empty": 2.0}
    assert windows == [
        {**common, "chats": WINDOW, "new": WINDOW, "tokens_per_step_new": 6.0},
        {**common, "chats": 3, "new": 0, "tokens_per_step_new": None},
    ]
    picture = growth_svg([summarise_growth(growth)])
    assert "both, new questions" in picture
