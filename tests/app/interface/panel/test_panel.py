"""The panel shows correct and honest figures within its width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import Event as Flag

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from app.conversation.events import Speculated, Wrote
from app.conversation.session_statistics import SessionStatistics, Throughput
from app.interface.draft_origins import LABELS_BY_NAME, MODEL_LABEL, ORIGINS
from app.interface.panel import phrases
from app.interface.panel.details import details, details_side_by_side
from app.interface.panel.drawing import NO_VALUE, allocate_columns, bar, sparkline
from app.interface.panel.layout import column, footer
from app.interface.themes import PanelStyles
from app.runtime.idle_encoding import EncodingProgress
from engines.budget.protocol import BudgetStatus
from engines.draft_tree import CHATS, ORIGIN_NAMES
from engines.ralm.events import RalmStatistics
from tests.app.interface.conftest import SCRIPT
from tests.app.interface.scripted import BUDGET_STATUS, Script, events_of, passes_of

STYLES = PanelStyles(
    Style(), Style(), Style(), Style(), Style(), dark=True, hint="F2 more", larger="F5"
)


def statistics_of(script: Script) -> SessionStatistics:
    stats = SessionStatistics()
    for event in events_of(script, Flag()):
        stats.observe(event, 0.0)
    return stats


def footer_of(script: Script, width: int = 76) -> list[str]:
    return [line.plain for line in footer(statistics_of(script), width, STYLES)]


def throughput(ratio: float, tokens: int = 100) -> Throughput:
    """A throughput of which half the steps are plain, and all take equally long."""
    return Throughput(tokens, 1.0, ratio, tokens, tokens // 2, ratio / 2)


def test_before_the_first_answer_it_introduces_itself() -> None:
    said = " ".join(line.plain for line in footer(SessionStatistics(), 76, STYLES))
    assert said.split() == phrases.INTRODUCTION.split()


def test_the_footer_starts_with_the_ratio_and_both_speeds() -> None:
    speeds, words, drafts = footer_of(SCRIPT)
    assert speeds.startswith("2.4× faster")
    assert "with drafts ███" in speeds
    assert "48 tok/s" in speeds
    assert speeds.rstrip().endswith("20 tok/s")
    assert words.startswith("words from   P▓")
    assert "past chats 37%" in words
    assert drafts.startswith("drafts       100% accepted · 2.9 tokens per step  5 min")
    assert drafts.endswith("F2 more")


@pytest.mark.parametrize("width", range(20, 60))
def test_a_speed_is_never_shown_without_the_one_before_it(width: int) -> None:
    speeds, words, _ = footer_of(SCRIPT, width)
    assert "with drafts" in speeds or "without" not in speeds
    assert "37%" in words or width < 40, "the largest origins stay"


def test_details_and_statistics_count_accepted_drafts_alike() -> None:
    stats = statistics_of(SCRIPT)
    lines = [line.plain for line in column(stats, 34, 60, STYLES, detailed=True)]
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("by origin")) :]
    (chats,) = [line.split() for line in table if line.startswith("P past chats")]
    answer = stats.answer
    accepted = answer.by_origin["chats"] / answer.drafted_by_origin["chats"]
    assert chats[4] == f"{accepted:.0%}"
    counts = f"{answer.longest_drafted} · {answer.accepted}"
    assert any(line.startswith("drafted") and line.endswith(counts) for line in table)


def test_a_short_saving_is_distinguished_from_none() -> None:
    stats = statistics_of(SCRIPT)
    stats.session = Throughput(47, 0.5, 0.54)
    assert phrases.saved(stats) == "<0.1 s saved"
    stats.session = Throughput(47, 0.5, 0.505)
    assert phrases.saved(stats) == "no time saved"


def test_the_footer_leaves_out_what_does_not_fit() -> None:
    speeds, _, drafts = footer_of(SCRIPT, 46)
    assert speeds.split() == ["2.4×", "faster", "with", "drafts", "48", "tok/s"]
    assert drafts == "drafts       100% accepted  5 min ·········█"


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (2.34, "2.3× faster"),
        (1.03, "1.03× faster"),
        (1.019, "no speed-up"),
        (0.985, "no speed-up"),
        (0.9, "10% slower"),
    ],
)
def test_the_ratio_is_honest(ratio: float, said: str) -> None:
    assert phrases.ratio(throughput(ratio), BUDGET_STATUS) == said


SLOW = BudgetStatus(0.05, True)
"""A model of 20 tokens per second."""
FAST = BudgetStatus(0.0014, True)
"""A model of 714 tokens per second."""


def unaided(
    status: BudgetStatus,
    step_s: float,
    possible: Mapping[str, float] | None = None,
    words: int = 100,
) -> Script:
    passes = passes_of(" ".join(["word"] * words), [0], 1)
    return Script(passes, step_s=step_s, budget_status=status, possible=possible or {})


@pytest.mark.parametrize(
    ("status", "step_s", "said"),
    [
        (SLOW, 0.06, "17 tok/s"),
        (FAST, 0.0015, "670 tok/s"),
    ],
)
def test_without_accepted_drafts_nothing_is_called_slower(
    status: BudgetStatus, step_s: float, said: str
) -> None:
    stats = statistics_of(unaided(status, step_s))
    lines = [
        *footer(stats, 76, STYLES),
        *column(stats, 34, 60, STYLES, detailed=True),
    ]
    text = "\n".join(line.plain for line in lines)
    assert text.startswith(said)
    assert not [word for word in ("slower", "lost", "without", "faster") if word in text]


def test_a_fast_model_gets_its_own_advice() -> None:
    speed, ready, advice = footer_of(unaided(FAST, 0.0015, {"chats": 0.41}))
    assert speed == "670 tok/s    The model by itself."
    assert ready.startswith("possible     P▓")
    assert ready.endswith("past chats 41%")
    assert advice.startswith("drafts       Drafting pays with larger models · F5")
    _, nothing, _ = footer_of(unaided(FAST, 0.0015))
    assert nothing == "possible     nothing yet; chats and imports help"


@given(st.lists(st.floats(0, 1), max_size=8).filter(lambda shares: sum(shares) > 0))
def test_percentages_add_up(parts: list[float]) -> None:
    shares = [part / sum(parts) for part in parts]
    shown = phrases.percents(shares)
    assert sum(int(text.rstrip("%")) for text in shown if text != "<1%") == 100
    for text, share in zip(shown, shares, strict=True):
        assert abs(int(text.strip("<%")) - 100 * share) <= 1
        assert (text == "0%") == (share == 0)


def test_rounded_shares_of_unused_drafts_add_up_to_their_total() -> None:
    held = {"recycle": 0.287, "prompt": 0.007, "chats": 0.005}
    stats = statistics_of(unaided(SLOW, 0.06, held, words=1000))
    lines = [line.plain for line in column(stats, 34, 60, STYLES, detailed=True)]
    at = next(at for at, line in enumerate(lines) if line.startswith("drafts would"))
    total, _, *parts = (line.split()[-1] for line in lines[at : at + 5])
    assert (total, parts) == ("30%", ["29%", "1%", "<1%"])
    table = [line.split()[-1] for line in lines if "–" in line]
    assert table == ["1%", "<1%", "29%"], "as above"


def test_the_reason_why_no_draft_helped_agrees_with_the_figures() -> None:
    stats = statistics_of(unaided(SLOW, 0.06))
    assert phrases.advice(stats, "F5") == "No draft was worth checking.", (
        "the advice is shown above"
    )
    assert phrases.accepted(stats) == "no drafts used"
    stats.answer.possible_by_origin = {"recycle": 20}
    assert phrases.advice(stats, "F5") == "No draft was worth checking; chats and imports help."
    stats.answer.longest_drafted = 12
    assert phrases.advice(stats, "F5").startswith("None of 12 draft tokens accepted")
    assert phrases.accepted(stats) == "0% accepted"


@pytest.mark.parametrize("status", [SLOW, FAST])
def test_a_model_with_accepted_drafts_is_not_called_unaided(status: BudgetStatus) -> None:
    script = Script(
        [*passes_of("word " * 30, [CHATS], 3), *passes_of("end " * 20, [0], 1)],
        step_s=0.06,
        budget_status=status,
    )
    stats = statistics_of(script)
    assert stats.answer.accepted
    text = "\n".join(
        line.plain
        for line in [*footer(stats, 76, STYLES), *column(stats, 34, 60, STYLES, detailed=True)]
    )
    assert "by itself" not in text
    assert "paused" not in text
    assert "past chats" in text


def test_nothing_is_called_slower_without_plain_steps() -> None:
    slow = Throughput(100, 1.0, 0.39, steps=100)
    assert phrases.ratio(slow, BUDGET_STATUS) == "no speed-up"
    slow.plain_steps, slow.undrafted_seconds = 50, 0.2
    assert phrases.ratio(slow, BUDGET_STATUS) == "61% slower"
    stats = statistics_of(SCRIPT)
    stats.session = Throughput(100, 9.0, 4.0, steps=100)
    assert phrases.saved(stats) == "no time saved"
    stats.session.plain_steps, stats.session.undrafted_seconds = 50, 2.0
    assert phrases.saved(stats) == "5.0 s lost"


def test_a_few_slow_drafted_steps_are_no_evidence() -> None:
    few = Throughput(56, 6.2, 4.6, steps=53, plain_steps=46, undrafted_seconds=4.0)
    assert few.drafted_ratio > 2
    assert phrases.ratio(few, BUDGET_STATUS) == "no speed-up"


def test_interruptions_that_plain_steps_suffer_too_are_no_evidence() -> None:
    busy = Throughput(100, 10.0, 6.0, steps=100, plain_steps=50, undrafted_seconds=5.0)
    assert phrases.ratio(busy, BUDGET_STATUS) == "no speed-up"


def test_the_speed_without_drafts_is_not_shown_on_thin_evidence() -> None:
    stats = statistics_of(SCRIPT)
    stats.throughput = Throughput(56, 6.2, 4.6, steps=53, plain_steps=46, undrafted_seconds=4.0)
    speeds = footer(stats, 76, STYLES)[0].plain
    assert speeds.startswith("no speed-up")
    assert speeds.rstrip().endswith("–")


def test_the_acceptance_rate_is_that_of_the_longest_draft() -> None:
    stats = statistics_of(SCRIPT)
    answer = stats.answer
    assert 0 < answer.accepted <= answer.longest_drafted < answer.drafted
    assert phrases.accepted(stats) == f"{answer.acceptance_rate:.0%} accepted"


def test_estimates_are_marked() -> None:
    estimate = replace(BUDGET_STATUS, plain_measured=False)
    assert phrases.ratio(throughput(2.0), estimate) == "~2.0× faster"
    assert "~20 tok/s" in footer_of(replace(SCRIPT, budget_status=estimate))[0]


def test_a_few_tokens_are_not_a_measurement() -> None:
    few = throughput(2.0, tokens=3)
    assert phrases.ratio(few, BUDGET_STATUS, writing=True) == "measuring…"
    assert phrases.ratio(few, BUDGET_STATUS) == "too short"


def test_every_origin_has_its_own_letter_texture_and_colours() -> None:
    known = [*ORIGINS.values(), MODEL_LABEL]
    assert set(LABELS_BY_NAME) == set(ORIGIN_NAMES.values())
    for attribute in ("name", "label", "letter", "texture", "dark", "light", "small"):
        assert len({getattr(origin, attribute) for origin in known}) == len(known)
    assert all(len(origin.label) <= 16 for origin in known)


@given(
    st.dictionaries(st.sampled_from(list(ORIGIN_NAMES)), st.integers(1, 60), max_size=7),
    st.integers(44, 120),
    st.sampled_from([0.0005, 0.06, 7.0]),
)
def test_lines_fit(counts: dict[int, int], width: int, step_s: float) -> None:
    pattern = [bit for bit, count in counts.items() for _ in range(count)] or [0]
    stats = statistics_of(Script(passes_of("word " * 200, pattern, 4), step_s=step_s))
    drawn = [
        *footer(stats, width, STYLES),
        *column(stats, 34, 40, STYLES, detailed=True),
        *column(stats, 34, 20, STYLES, detailed=False),
    ]
    limits = [width] * 3 + [34] * (len(drawn) - 3)
    assert [
        line.plain for line, most in zip(drawn, limits, strict=True) if line.cell_len > most
    ] == []


@given(st.floats(0, 1), st.integers(1, 40))
def test_bars_are_as_long_as_their_share(share: float, width: int) -> None:
    drawn = bar(share, width)
    assert len(drawn) <= width
    assert abs(len(drawn) - share * width) <= 1
    assert bool(drawn) == (share > 0)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8), st.integers(20, 60))
def test_stacked_parts_fill_the_bar(parts: list[float], width: int) -> None:
    shares = [part / sum(parts) for part in parts]
    columns = allocate_columns(shares, width)
    assert all(column >= 1 for column in columns)
    assert sum(columns) >= width
    assert all(
        abs(column - share * width) <= 1 for column, share in zip(columns, shares, strict=True)
    )


def test_sparklines_start_at_the_floor() -> None:
    assert sparkline([0.0, 1.0, 3.0], floor=1.0) == f"{NO_VALUE}▁█"


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, ""),
        (EncodingProgress(12, 100, True, True), "indexing imports 12%"),
        (EncodingProgress(12, 100, False, True), "indexing chats 12%"),
    ],
)
def test_idle_progress_in_words(progress: EncodingProgress | None, words: str) -> None:
    assert phrases.idle(progress) == words


def test_the_draft_model_is_named_if_there_is_one() -> None:
    stats = statistics_of(SCRIPT)

    def drawn() -> list[str]:
        lines = [*column(stats, 34, 60, STYLES, detailed=False), *footer(stats, 110, STYLES)]
        lines += details(stats, 34, STYLES)
        return [line.plain for line in lines]

    assert not [line for line in drawn() if "draft model" in line or "learn" in line]
    stats.learning_waits = "learns from 25 new answers, 9 so far"
    lines = drawn()
    assert "draft model" not in lines, "the draft head learns too"
    at = lines.index("learning")
    assert lines[at + 1 : at + 3] == ["learns from 25 new answers, 9 so", "far"]
    stats.draft_model = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M"
    lines = drawn()
    at = lines.index("draft model")
    assert lines[at + 1 : at + 3] == [stats.draft_model, "learns from 25 new answers, 9 so"]
    stats.draft_model, stats.draft_model_version, stats.learned_share = "built-in", 3, 0.12
    stats.answer.draft_model_compared, stats.answer.draft_model_matched = 50, 42
    lines = drawn()
    at = lines.index("draft model")
    assert lines[at + 1 : at + 3] == ["built-in · v3 · 84% right", "learning 12%"]
    assert any("  draft model v3 · 84% right" in line for line in lines)
    assert f"draft model{'built-in':>23}" in lines
    assert f"its guesses{'v3 · 84% right':>23}" in lines
    assert f"learning{'12%':>26}" in lines
    stats.draft_model_version, stats.answer.draft_model_matched = 0, 50
    assert f"its guesses{'100% right':>23}" in drawn()


@pytest.mark.parametrize(("width", "beside"), [(36, False), (71, False), (76, True)])
def test_details_never_collide(width: int, beside: bool) -> None:
    lines = [line.plain for line in details_side_by_side(statistics_of(SCRIPT), width, STYLES)]
    assert all(len(line) <= width for line in lines)
    assert ("last answer" in lines[0]) == beside
    assert [line for line in lines if line.startswith("P past chats  ")]


def test_speculative_retrieval_has_its_figures() -> None:
    stats = statistics_of(SCRIPT)
    figures = RalmStatistics(
        strides=48, guesses=48, right=42, rollbacks=1, batches=20, stride_sum=48, queries=49
    )
    figures.search_s, figures.waited_s, figures.wasted_s, figures.lookup_s = 4.9, 3.2, 0.6, 0.2
    stats.observe(Speculated(figures), 0.0)
    lines = [line.plain for line in column(stats, 34, 60, STYLES, detailed=False)]
    at = lines.index("passages")
    assert lines[at + 1 : at + 5] == [
        "88% guessed right",
        "42 of 48 cache hits",
        "stride 2.4 · 1 rollback",
        "~0.8 s saved",
    ]
    *_, last = footer(stats, 76, STYLES)
    assert last.plain.startswith("passages     88% guessed right · stride 2.4 · 1 rollback · ")
    next_answer = next(event for event in events_of(SCRIPT, Flag()) if isinstance(event, Wrote))
    stats.end()
    stats.observe(next_answer, 1.0)
    assert stats.retrieval is None, "the next answer retrieves nothing"
    figures.waited_s = 9.0
    assert phrases.search_saved(figures) == "~5.0 s lost"
    assert phrases.search_saved(RalmStatistics()) == "no time saved"
