"""What the acceptance panel says in words: ratios, speeds, pauses. Pure functions over figures.

Owns honesty: estimates carry a `~`, a ratio that is none is not called one, and nothing is shown
before it was measured.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from app.conversation.session_statistics import SessionStatistics, Throughput
from engines.budget.protocol import BudgetStatus

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress

NOTICEABLE = 0.02
"""Differences of speed below this are called none."""

FEWEST_TOKENS = 8
"""Tokens before which an answer is too short to speak of its speed."""

RIPE = 4096
"""Moments below which little of what is said has been said before: about fifty answers."""

LEAST_SAVED = 0.05
"""Seconds below which nothing was saved or lost."""

PROMISE = (
    "Ask something: this shows how much faster the answer came than the model alone writes,"
    " and where its words were drafted from."
)


def is_telling(pace: Throughput) -> bool:
    """Whether enough was measured to name a speed."""
    return pace.tokens >= FEWEST_TOKENS and pace.ratio > 0


def is_faster(pace: Throughput) -> bool:
    """Whether drafting made a difference worth naming."""
    return is_telling(pace) and pace.ratio >= 1 + NOTICEABLE


def ratio(pace: Throughput, budget_status: BudgetStatus) -> str:
    """The lead: how many times as fast as plain decoding."""
    if not is_telling(pace):
        return "measuring…"
    about = mark(budget_status)
    if is_faster(pace):
        return f"{about}{times(pace.ratio)} faster"
    if pace.ratio > 1 - NOTICEABLE:
        return "as fast as plain"
    return f"{about}{round((1 - pace.ratio) * 100)}% slower"


def times(value: float) -> str:
    """`2.3×`, with two digits after the point while that matters."""
    return f"{value:.2f}×" if value < 1.1 else f"{value:.1f}×"


def mark(budget_status: BudgetStatus) -> str:
    """What stands before figures that rest on an estimate."""
    return "" if budget_status.plain_measured else "~"


def speed(tokens_per_second: float) -> str:
    """`41 tok/s`."""
    if tokens_per_second >= 10:
        return f"{tokens_per_second:,.0f} tok/s"
    return f"{tokens_per_second:.1f} tok/s"


def percent(share: float) -> str:
    """`41%`; what is not nothing is not called 0."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def pause(budget_status: BudgetStatus) -> str:
    """Why nothing is drafted."""
    if not budget_status.loss:
        return "drafting paused: it lost time lately; tries again by itself"
    return f"drafting paused: would cost {percent(budget_status.loss)} here; tries again by itself"


def accepted(figures: SessionStatistics) -> str:
    """`58% accepted`, or that nothing was drafted."""
    answer = figures.answer
    return f"{percent(answer.acceptance_rate)} accepted" if answer.drafted else "none yet"


def calls(figures: SessionStatistics) -> str:
    """`2.6 tokens a call`."""
    return f"{figures.answer.tokens_per_call:.1f} tokens a call"


def saved(figures: SessionStatistics) -> str:
    """What the session gained or lost."""
    seconds = figures.saved_seconds
    if abs(seconds) < LEAST_SAVED:
        return "no time saved"
    return f"{duration(abs(seconds))} {'saved' if seconds >= 0 else 'lost'}"


def remembered(moments: int) -> str:
    """`312 · few yet`: how much there is to draft from."""
    return f"{moments:,}" if moments >= RIPE else f"{moments:,} · few yet"


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` characters."""
    return textwrap.wrap(text, max(width, 8))


def idle(progress: EncodingProgress | None) -> str:
    """`reading imports 12%`: what the model does while idle; empty if nothing worth showing."""
    if progress is None:
        return ""
    what = (
        "rereading" if progress.renewing else "reading imports" if progress.imports else "reading"
    )
    return f"{what} {percent(progress.done / max(1, progress.total))}"
