"""The words of the acceptance panel: ratios, speeds, pauses. Pure functions over statistics.

Owns honest wording: estimates carry a `~`, a difference within noise is not shown as a ratio, and
nothing is shown before it was measured.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from app.conversation.session_statistics import SessionStatistics, Throughput
from engines.budget.protocol import BudgetStatus

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress

MIN_SPEED_DIFFERENCE = 0.02
"""Smaller relative differences of speed count as none."""

MIN_MEASURED_TOKENS = 8
"""The speed of a shorter answer is not shown."""

MANY_STATES = 4096
"""With fewer states (about fifty answers), the dense index rarely has a match."""

MIN_SAVED_SECONDS = 0.05
"""Less counts as nothing saved or lost."""

INTRODUCTION = (
    "Ask something: this shows how much faster the answer came than the model alone writes,"
    " and where its words were drafted from."
)


def is_measured(throughput: Throughput) -> bool:
    """Whether enough tokens were measured to show a speed."""
    return throughput.tokens >= MIN_MEASURED_TOKENS and throughput.ratio > 0


def is_faster(throughput: Throughput) -> bool:
    """Whether drafting was noticeably faster."""
    return is_measured(throughput) and throughput.ratio >= 1 + MIN_SPEED_DIFFERENCE


def ratio(throughput: Throughput, budget_status: BudgetStatus) -> str:
    """The headline: how many times as fast as plain decoding."""
    if not is_measured(throughput):
        return "measuring…"
    about = mark(budget_status)
    if is_faster(throughput):
        return f"{about}{times(throughput.ratio)} faster"
    if throughput.ratio > 1 - MIN_SPEED_DIFFERENCE:
        return "as fast as plain"
    return f"{about}{round((1 - throughput.ratio) * 100)}% slower"


def times(value: float) -> str:
    """`2.3×`; two decimals below 1.1."""
    return f"{value:.2f}×" if value < 1.1 else f"{value:.1f}×"


def mark(budget_status: BudgetStatus) -> str:
    """The prefix of figures that rest on an estimate."""
    return "" if budget_status.plain_measured else "~"


def speed(tokens_per_second: float) -> str:
    """`41 tok/s`."""
    if tokens_per_second >= 10:
        return f"{tokens_per_second:,.0f} tok/s"
    return f"{tokens_per_second:.1f} tok/s"


def percent(share: float) -> str:
    """`41%`; a positive share is never shown as 0."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def pause(budget_status: BudgetStatus) -> str:
    """Why drafting is paused."""
    if not budget_status.loss:
        return "drafting paused: it lost time lately; tries again by itself"
    return f"drafting paused: would cost {percent(budget_status.loss)} here; tries again by itself"


def accepted(stats: SessionStatistics) -> str:
    """`58% accepted`, or `none yet` where nothing was drafted."""
    answer = stats.answer
    return f"{percent(answer.acceptance_rate)} accepted" if answer.drafted else "none yet"


def calls(stats: SessionStatistics) -> str:
    """`2.6 tokens a call`."""
    return f"{stats.answer.tokens_per_call:.1f} tokens a call"


def saved(stats: SessionStatistics) -> str:
    """The time saved or lost in this session."""
    seconds = stats.saved_seconds
    if abs(seconds) < MIN_SAVED_SECONDS:
        return "no time saved"
    return f"{duration(abs(seconds))} {'saved' if seconds >= 0 else 'lost'}"


def dense_states(count: int) -> str:
    """`312 · few yet`: the size of the dense index."""
    return f"{count:,}" if count >= MANY_STATES else f"{count:,} · few yet"


def wrapped(text: str, width: int) -> list[str]:
    """`text` wrapped to lines of at most `width` characters."""
    return textwrap.wrap(text, max(width, 8))


def idle(progress: EncodingProgress | None) -> str:
    """`reading imports 12%`: what the model does while idle; empty if nothing worth showing."""
    if progress is None:
        return ""
    what = "reading imports" if progress.imports else "reading"
    return f"{what} {percent(progress.done / max(1, progress.total))}"
