"""`specchat bench growth`: does specchat get faster the more it is used?

Each chat is answered and then becomes history: its tokens go into CREST, its states into the dense
index. The same chat is answered with empty stores and by plain decoding right before, so each
window compares the same chats on the same machine at the same time.

With empty stores, drafters are fresh for each chat and draft from that chat alone. Learned costs
and acceptance rates are kept in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from app.bench.decode import (
    DecodeRow,
    TimedAnswer,
    answer_chat,
    speedup,
    total_speedup,
    total_statistics,
)
from app.bench.environment import BenchStores, bench_stores
from app.bench.workloads import Workload
from app.engine.draft_resources import make_observers, set_recording_owner
from app.engine.drafters import make_drafters
from engines.sampler import Sampling

WINDOW = 20
"""Chats in a window."""


@dataclass(slots=True)
class Growth:
    """One set of drafters, whose stores grow, and the answers of all three ways by chat.

    Attributes:
        full: drafts from `stores`.
        empty: drafts with fresh drafters for each chat.
        new: of each chat, whether none of its questions was asked before.
    """

    names: tuple[str, ...]
    stores: BenchStores
    full: DecodeRow
    empty: DecodeRow
    plain: DecodeRow
    new: list[bool] = field(default_factory=list)


def grow(growth: Growth, workload: Sequence[Workload], sampling: Sampling) -> Iterator[int]:
    """Answer each chat plainly, with empty and with full stores; yields the number done."""
    asked: set[str] = set()
    engine = growth.full.engine
    for number, chat in enumerate(workload):
        plain = answer_chat(growth.plain.engine, chat, (), sampling)
        empty = _answer_with_empty_stores(growth, chat, plain, sampling)
        set_recording_owner(engine.observers, f"chat:{number}")
        full = answer_chat(engine, chat, plain, sampling)
        growth.stores.learn([*full[-1].prompt, *full[-1].tokens])
        for row, answers in ((growth.plain, plain), (growth.empty, empty), (growth.full, full)):
            row.chats.append(answers)
        growth.new.append(asked.isdisjoint(chat.questions))
        asked.update(chat.questions)
        yield number + 1


def _answer_with_empty_stores(
    growth: Growth, chat: Workload, plain: Sequence[TimedAnswer], sampling: Sampling
) -> list[TimedAnswer]:
    """Answer as if this were the first chat."""
    engine = growth.empty.engine
    with bench_stores(engine, growth.names) as stores:
        drafters = make_drafters(growth.names, stores.resources)
        observers = make_observers(stores.resources)
        fresh = replace(engine, drafters=drafters, observers=observers)
        return answer_chat(fresh, chat, plain, sampling)


def summarise_growth(growth: Growth) -> dict[str, object]:
    """The figures by window, as in `bench growth --json`."""
    starts = range(0, len(growth.new), WINDOW)
    windows = [_window(growth, slice(start, start + WINDOW)) for start in starts]
    return {"drafters": growth.full.drafters, "windows": windows}


def _window(growth: Growth, chosen: slice) -> dict[str, object]:
    """One window's figures; those of new questions are null if there were none."""
    full, empty, plain = (
        replace(row, chats=row.chats[chosen]) for row in (growth.full, growth.empty, growth.plain)
    )
    new = growth.new[chosen]
    unseen = [answer for chat in compress(full.chats, new) for answer in chat]
    return {
        "chats": len(new),
        "tokens_per_step": total_statistics(full.answers()).tokens_per_step,
        "tokens_per_step_empty": total_statistics(empty.answers()).tokens_per_step,
        "new": sum(new),
        "tokens_per_step_new": total_statistics(unseen).tokens_per_step if unseen else None,
        "speedup": speedup(full, plain),
        "speedup_empty": speedup(empty, plain),
        "total_speedup": total_speedup(full, plain),
        "total_speedup_empty": total_speedup(empty, plain),
    }
