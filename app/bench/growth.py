"""`specchat bench growth`: does specchat get faster the more it is used?

Goes through months of use. Each chat is answered and then becomes history: its tokens go into
CREST, its states into the dense index. The same chat is answered with empty stores and by plain
decoding right after, so each window compares the same chats on the same machine at the same time.

With empty stores, drafters are fresh for each chat and draft from that chat alone. Learned costs
and acceptance rates are kept in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from app.bench.decode import TimedAnswer, answer_chat, total_ratio
from app.bench.environment import BenchStores, bench_stores
from app.bench.workloads import Workload
from app.conversation.statistics import Statistics
from app.engine.drafters import make_drafters
from app.engine.engine import Engine
from app.engine.stores import make_observers, set_recording_owner
from engines.sampler import Sampling

WINDOW = 20
"""Chats in a window."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One chat, answered three times.

    Attributes:
        new: whether none of its questions was asked before.
    """

    new: bool
    full: list[TimedAnswer]
    empty: list[TimedAnswer]
    plain: list[TimedAnswer]


@dataclass(slots=True)
class Growth:
    """One set of drafters, whose stores grow.

    Attributes:
        engine: drafts from `stores`.
        empty: the same model, with fresh drafters for each chat.
    """

    drafters: str
    names: tuple[str, ...]
    engine: Engine
    empty: Engine
    stores: BenchStores
    trials: list[Trial] = field(default_factory=list)


def grow(
    growth: Growth, plain: Engine, workload: Sequence[Workload], sampling: Sampling
) -> Iterator[int]:
    """Answer each chat plainly, with empty and with full stores; yields the number done."""
    asked: set[str] = set()
    for number, chat in enumerate(workload):
        bare = answer_chat(plain, chat, (), sampling)
        empty = _answer_with_empty_stores(growth, chat, bare, sampling)
        set_recording_owner(growth.engine.observers, f"chat:{number}")
        full = answer_chat(growth.engine, chat, bare, sampling)
        growth.stores.learn([*full[-1].prompt, *full[-1].tokens])
        growth.trials.append(Trial(asked.isdisjoint(chat.questions), full, empty, bare))
        asked.update(chat.questions)
        yield number + 1


def _answer_with_empty_stores(
    growth: Growth, chat: Workload, plain: Sequence[TimedAnswer], sampling: Sampling
) -> list[TimedAnswer]:
    """Answer as if this were the first chat."""
    with bench_stores(growth.empty, growth.names) as stores:
        drafters = make_drafters(growth.names, stores.stores)
        observers = make_observers(stores.stores)
        return answer_chat(
            replace(growth.empty, drafters=drafters, observers=observers), chat, plain, sampling
        )


def summarise_growth(growth: Growth) -> dict[str, object]:
    """The figures by window, as in `bench growth --json`."""
    trials = growth.trials
    windows = [trials[start : start + WINDOW] for start in range(0, len(trials), WINDOW)]
    return {"drafters": growth.drafters, "windows": [_window(part) for part in windows]}


def _window(trials: Sequence[Trial]) -> dict[str, object]:
    """One window's figures; those of new questions are null if there were none."""
    unseen = [trial for trial in trials if trial.new]
    return {
        "chats": len(trials),
        "tokens_per_step": _per_step(trials, lambda trial: trial.full),
        "tokens_per_step_empty": _per_step(trials, lambda trial: trial.empty),
        "new": len(unseen),
        "tokens_per_step_new": _per_step(unseen, lambda trial: trial.full) if unseen else None,
        "speedup": _ratio(trials, lambda trial: trial.full),
        "speedup_empty": _ratio(trials, lambda trial: trial.empty),
        "total_speedup": _total_ratio(trials, lambda trial: trial.full),
        "total_speedup_empty": _total_ratio(trials, lambda trial: trial.empty),
    }


def _per_step(trials: Sequence[Trial], which: Callable[[Trial], list[TimedAnswer]]) -> float:
    total = Statistics()
    for trial in trials:
        for answer in which(trial):
            total.add(answer.statistics)
    return total.tokens_per_step


def _ratio(trials: Sequence[Trial], which: Callable[[Trial], list[TimedAnswer]]) -> float:
    """Median over chats of plain seconds ÷ these, prefill excluded."""
    ratios = [
        _seconds(trial.plain) / _seconds(which(trial)) for trial in trials if _seconds(which(trial))
    ]
    return median(ratios) if ratios else 1.0


def _total_ratio(trials: Sequence[Trial], which: Callable[[Trial], list[TimedAnswer]]) -> float:
    """Seconds per token of all plain answers ÷ those of these, prefill excluded."""
    own = [answer for trial in trials for answer in which(trial)]
    plain = [answer for trial in trials for answer in trial.plain]
    return total_ratio(own, plain)


def _seconds(answers: Sequence[TimedAnswer]) -> float:
    return sum(answer.statistics.decode_seconds for answer in answers)
