"""The words of the acceptance panel: ratios, speeds, pauses. Pure functions over statistics.

Owns honest wording: estimates carry a `~`, a difference within noise is not shown as a ratio, and
nothing is shown before it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.conversation.session_statistics import SessionStatistics, Throughput
from app.interface.wording import duration, time_left, times
from app.models.description import format_speed, percent
from app.runtime.learning import Learned, LearningProgress
from engines.budget.protocol import BudgetStatus
from engines.ralm.events import RalmStatistics

if TYPE_CHECKING:
    from app.runtime.idle_encoding import EncodingProgress

MIN_SPEED_DIFFERENCE = 0.02
"""Smaller relative differences of speed count as none."""

MIN_MEASURED_TOKENS = 12
"""Speeds and shares of fewer tokens are not shown."""

MIN_COMPARED_STEPS = 12
"""With fewer steps with drafts, or without, in the time that is compared, nothing is called slower:
another program may have slowed some of them, and first answers try what drafts cost."""

MANY_STATES = 4096
"""With fewer states (about fifty answers), the dense index rarely has a match."""

MIN_SAVED_SECONDS = 0.05
"""Less search time counts as nothing saved or lost."""

FAST_TOKENS_PER_S = 100.0
"""A model this fast by itself writes ahead of its reader, and its passes cost hardly more than
finding drafts for them."""

UNAIDED = "The model by itself."
"""What a speed is of while no drafts are used."""

INTRODUCTION = (
    "Ask something. This panel shows how much time you saved, and where the guessed words came"
    " from."
)


def is_measured(throughput: Throughput) -> bool:
    """Whether enough tokens were measured to show a speed."""
    return throughput.tokens >= MIN_MEASURED_TOKENS and throughput.ratio > 0


def is_faster(throughput: Throughput) -> bool:
    """Whether drafting was noticeably faster."""
    return is_measured(throughput) and throughput.ratio >= 1 + MIN_SPEED_DIFFERENCE


def is_slower(throughput: Throughput) -> bool:
    """Whether drafting was noticeably slower, as many steps of either kind show."""
    plain, drafted = throughput.plain_steps, throughput.steps - throughput.plain_steps
    if min(plain, drafted) < MIN_COMPARED_STEPS or throughput.ratio > 1 - MIN_SPEED_DIFFERENCE:
        return False
    return is_measured(throughput) and throughput.drafted_ratio > 1 + MIN_SPEED_DIFFERENCE


def is_comparable(throughput: Throughput) -> bool:
    """Whether the speed without drafts can be shown beside the other: not a higher one on thin
    evidence."""
    return throughput.ratio > 1 - MIN_SPEED_DIFFERENCE or is_slower(throughput)


def ratio(throughput: Throughput, budget_status: BudgetStatus, *, writing: bool = False) -> str:
    """The headline: how many times as fast as without drafts.

    Args:
        writing: whether more is to come.
    """
    if not is_measured(throughput):
        return "measuring…" if writing else "too short"
    about = mark(budget_status)
    if is_faster(throughput):
        return f"{about}{times(throughput.ratio)} faster"
    if not is_slower(throughput):
        return "no speed-up"
    return f"{about}{round((1 - throughput.ratio) * 100)}% slower"


def mark(budget_status: BudgetStatus) -> str:
    """The prefix of figures that rest on an estimate."""
    return "" if budget_status.plain_measured else "~"


def percents(shares: Sequence[float]) -> list[str]:
    """`percent` of each, rounded so that they add up to the percentage of their sum."""
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
    """`710 tok/s` of a model that writes by itself, to two digits, so that it stands still."""
    return format_speed(float(f"{throughput.speed:.2g}"))


def advice(stats: SessionStatistics, larger: str) -> str:
    """Why no draft helped, and what would; `larger` names the key to get a larger model."""
    if is_fast(stats.current):
        return f"Drafting pays with larger models · {larger}"
    drafted = stats.answer.longest_drafted
    if drafted >= MIN_MEASURED_TOKENS:
        reason = f"None of {drafted:,} draft tokens accepted"
    else:
        reason = f"{'Few drafts were' if drafted else 'No draft was'} worth checking"
    # Where drafts held none of the words, that is said beside it, with what helps.
    return f"{reason}; chats and imports help." if stats.possible else f"{reason}."


def accepted(stats: SessionStatistics) -> str:
    """`58% accepted`, of the longest draft of each step, or `no drafts used`."""
    answer = stats.answer
    said = f"{percent(answer.acceptance_rate)} accepted"
    return said if answer.longest_drafted else "no drafts used"


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
    """`312 (still few)`: the size of the dense index."""
    return f"{count:,}" if count >= MANY_STATES else f"{count:,} (still few)"


def idle(progress: EncodingProgress | None) -> str:
    """`indexing imports 12% · 3 min left`: idle work; empty if nothing worth showing."""
    if progress is None:
        return ""
    what = "indexing imports" if progress.imports else "indexing chats"
    share = percent(progress.done / max(1, progress.total))
    return f"{what} {share}{time_left(progress.seconds_left)}"


def learning(progress: LearningProgress | Learned | None) -> str:
    """`learning 12% · 3 min left`, then `learned: 81% → 84% right`, or of a first draft head
    `draft head made: 70% right`; empty for nothing."""
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
    """`qwen-0.5b · v3 · 84% right`: the draft model; empty without one."""
    return " · ".join(filter(None, (stats.draft_model, draft_model_figures(stats))))


def draft_model_figures(stats: SessionStatistics) -> str:
    """`v3 · 84% right`: the version of the draft model, unless it learned nothing, and the share of
    its guesses in this answer, checked or not, that were right."""
    if not stats.draft_model:
        return ""
    compared = stats.answer.draft_model_compared >= MIN_MEASURED_TOKENS
    said = [f"v{stats.draft_model_version}"] if stats.draft_model_version else []
    said += [f"{percent(stats.answer.draft_model_acceptance)} right"] if compared else []
    return " · ".join(said)


def guessed_passages(retrieval: RalmStatistics) -> str:
    """`88% guessed right`, or that no guess was verified yet."""
    return f"{percent(retrieval.accuracy)} guessed right" if retrieval.guesses else "none guessed"


def cache_hits(retrieval: RalmStatistics) -> str:
    """`42 of 48 cache hits`: strides whose passage the cache of this answer had."""
    return f"{retrieval.right} of {retrieval.strides} cache hits"


def strides(retrieval: RalmStatistics) -> str:
    """`stride 2.4 · 1 rollback`."""
    count = retrieval.rollbacks
    return f"stride {retrieval.stride:.1f} · {count} rollback{'' if count == 1 else 's'}"


def search_saved(retrieval: RalmStatistics) -> str:
    """`~0.8 s saved`, compared with a search before each stride; an estimate."""
    seconds = retrieval.saved_s
    if abs(seconds) < MIN_SAVED_SECONDS:
        return "no time saved"
    return f"~{duration(abs(seconds))} {'saved' if seconds > 0 else 'lost'}"


def training(stats: SessionStatistics) -> str:
    """`learning 12%`: how far the training is, or what the next one waits for; empty without."""
    if stats.learned_share is not None:
        return f"learning {percent(stats.learned_share)}"
    return stats.learning_waits
