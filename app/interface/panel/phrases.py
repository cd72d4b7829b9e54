"""The words of the acceptance panel, as pure functions over statistics.

Estimates carry a `~`, a difference within noise is not shown as a ratio, and nothing is shown
before it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.conversation.session_statistics import SessionStatistics, Throughput
from app.figures import amount, format_speed, percent
from app.interface.wording import duration, time_left, times
from app.runtime.learning import Learned, LearningProgress
from engines.budget.protocol import BudgetStatus
from engines.ralm.events import RalmStatistics

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress

MIN_SPEED_DIFFERENCE = 0.02
"""Smaller relative differences in speed count as none."""

MIN_MEASURED_TOKENS = 12
"""Speeds and shares of fewer tokens are not shown."""

MIN_COMPARED_STEPS = 12
"""With fewer steps of either kind nothing is called slower: another program may have slowed some of
them, and the first answers measure what drafts cost."""

MANY_STATES = 4096
"""With fewer states (about fifty answers) the dense index rarely has a match."""

MIN_SAVED_SECONDS = 0.05
"""Less search time counts as neither saved nor lost."""

FAST_TOKENS_PER_S = 100.0
"""A model this fast writes ahead of its reader, and its passes cost hardly more than drafting."""

UNAIDED = "The model by itself."
"""Remark on a speed without accepted drafts."""

INTRODUCTION = (
    "Ask something. This panel shows how much time you saved, and where the guessed words came"
    " from."
)


def is_measured(throughput: Throughput) -> bool:
    """Whether enough tokens were timed to show a speed."""
    return throughput.tokens >= MIN_MEASURED_TOKENS and throughput.ratio > 0


def is_faster(throughput: Throughput) -> bool:
    """Whether drafting was noticeably faster."""
    return is_measured(throughput) and throughput.ratio >= 1 + MIN_SPEED_DIFFERENCE


def is_slower(throughput: Throughput) -> bool:
    """Whether drafting was noticeably slower, over enough steps of either kind."""
    plain, drafted = throughput.plain_steps, throughput.steps - throughput.plain_steps
    if min(plain, drafted) < MIN_COMPARED_STEPS or throughput.ratio > 1 - MIN_SPEED_DIFFERENCE:
        return False
    return is_measured(throughput) and throughput.drafted_ratio > 1 + MIN_SPEED_DIFFERENCE


def is_comparable(throughput: Throughput) -> bool:
    """Whether to show the speed without drafts: not a higher one on thin evidence."""
    return throughput.ratio > 1 - MIN_SPEED_DIFFERENCE or is_slower(throughput)


def ratio(throughput: Throughput, budget_status: BudgetStatus, *, writing: bool = False) -> str:
    """The headline, such as `2.3× faster`; `writing` says that the answer is incomplete."""
    if not is_measured(throughput):
        return "measuring…" if writing else "too short"
    about = mark(budget_status)
    if is_faster(throughput):
        return f"{about}{times(throughput.ratio)} faster"
    if not is_slower(throughput):
        return "no speed-up"
    return f"{about}{round((1 - throughput.ratio) * 100)}% slower"


def mark(budget_status: BudgetStatus) -> str:
    """The prefix of estimated figures."""
    return "" if budget_status.plain_measured else "~"


def percents(shares: Sequence[float]) -> list[str]:
    """Percentages that add up to that of the sum, by the largest remainder method."""
    whole = [int(100 * share) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda index: whole[index] - 100 * shares[index])
    for index in by_rest[: max(0, round(100 * sum(shares)) - sum(whole))]:
        whole[index] += 1
    return [
        "<1%" if share > 0 and not number else f"{number}%"
        for number, share in zip(whole, shares, strict=True)
    ]


def is_unaided(stats: SessionStatistics) -> bool:
    """Whether the model wrote all of the answer by itself."""
    return is_measured(stats.current) and not stats.answer.accepted


def is_fast(throughput: Throughput) -> bool:
    """Whether the model alone is too fast to gain from drafts."""
    return throughput.plain_speed >= FAST_TOKENS_PER_S


def own_speed(throughput: Throughput) -> str:
    """`710 tok/s`, rounded to two digits to keep the display steady."""
    return format_speed(float(f"{throughput.speed:.2g}"))


def advice(stats: SessionStatistics, larger: str) -> str:
    """Why no draft helped, and what would; `larger` names the key of the list of models."""
    if is_fast(stats.current):
        return f"Drafting pays with larger models · {larger}"
    drafted = stats.answer.longest_drafted
    if drafted >= MIN_MEASURED_TOKENS:
        reason = f"None of {drafted:,} draft tokens accepted"
    else:
        reason = f"{'Few drafts were' if drafted else 'No draft was'} worth checking"
    # If drafts contained nothing, the panel says so next to this, with the same advice.
    return f"{reason}; chats and imports help." if stats.possible else f"{reason}."


def accepted(stats: SessionStatistics) -> str:
    """`58% accepted`, along the longest draft of each step, or `no drafts used`."""
    answer = stats.answer
    rate = percent(answer.acceptance_rate)
    return f"{rate} accepted" if answer.longest_drafted else "no drafts used"


def tokens_per_step(stats: SessionStatistics) -> str:
    """`2.6 tokens per step`."""
    return f"{stats.answer.tokens_per_step:.1f} tokens per step"


def saved(stats: SessionStatistics) -> str:
    """The time saved or lost in this session."""
    seconds = stats.saved_seconds
    unknown = seconds < 0 and not is_slower(stats.session)
    if unknown or abs(seconds) <= MIN_SPEED_DIFFERENCE * stats.session.plain_seconds:
        return "no time saved"
    return f"{duration(abs(seconds))} {'saved' if seconds >= 0 else 'lost'}"


def dense_states(count: int) -> str:
    """The number of states in the dense index: `312 (still few)`."""
    return f"{count:,}" if count >= MANY_STATES else f"{count:,} (still few)"


def idle(progress: EncodingProgress | None) -> str:
    """Idle work: `indexing imports 12% · 3 min left`; empty without any."""
    if progress is None:
        return ""
    what = "indexing imports" if progress.imports else "indexing chats"
    share = percent(progress.done / max(1, progress.total))
    return f"{what} {share}{time_left(progress.seconds_left)}"


def learning(progress: LearningProgress | Learned | None) -> str:
    """`learning 12% · 3 min left`, then `learned: 81% → 84% right`, or for a first draft head
    `draft head made: 70% right`; empty for None."""
    if progress is None:
        return ""
    if isinstance(progress, Learned):
        after = f"{percent(progress.after)} right"
        if progress.before is None:
            return f"draft head made: {after}"
        subject = "draft head learned" if progress.head else "learned"
        return f"{subject}: {percent(progress.before)} → {after}"
    return f"learning {percent(progress.share)}{time_left(progress.seconds_left)}"


def draft_model(stats: SessionStatistics) -> str:
    """The draft model: `qwen-0.5b · v3 · 84% right`; empty without one."""
    return " · ".join(filter(None, (stats.draft_model, draft_model_figures(stats))))


def draft_model_figures(stats: SessionStatistics) -> str:
    """`v3 · 84% right`: the draft model's version, once it has learned, and the share of its
    guesses in this answer, verified or not, that were right."""
    if not stats.draft_model:
        return ""
    compared = stats.answer.draft_model_compared >= MIN_MEASURED_TOKENS
    figures = [f"v{stats.draft_model_version}"] if stats.draft_model_version else []
    figures += [f"{percent(stats.answer.draft_model_acceptance)} right"] if compared else []
    return " · ".join(figures)


def guessed_passages(retrieval: RalmStatistics) -> str:
    """`88% guessed right`; `none guessed` until a guess is verified."""
    return f"{percent(retrieval.accuracy)} guessed right" if retrieval.guesses else "none guessed"


def cache_hits(retrieval: RalmStatistics) -> str:
    """`42 of 48 cache hits`: strides whose passage was in the answer's cache."""
    return f"{retrieval.right} of {retrieval.strides} cache hits"


def strides(retrieval: RalmStatistics) -> str:
    """`stride 2.4 · 1 rollback`."""
    return f"stride {retrieval.stride:.1f} · {amount(retrieval.rollbacks, 'rollback')}"


def search_saved(retrieval: RalmStatistics) -> str:
    """`~0.8 s saved`: an estimate against searching before each stride."""
    seconds = retrieval.saved_s
    if abs(seconds) < MIN_SAVED_SECONDS:
        return "no time saved"
    return f"~{duration(abs(seconds))} {'saved' if seconds > 0 else 'lost'}"


def training(stats: SessionStatistics) -> str:
    """`learning 12%`, or what the next training waits for; empty without training."""
    if stats.learned_share is not None:
        return f"learning {percent(stats.learned_share)}"
    return stats.learning_waits
