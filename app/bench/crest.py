"""`specchat bench crest`: CREST against REST and the other drafters, on recorded answers.

Owns the rows of the report. What is compared is `app.bench.crest_stores`'s choice; the walk over
the answers is `engines.replay`'s.

Measured with the Llama-2 tokenizer on answers to AlpacaEval's prompts 600 to 804 by Llama-3.1-8B
(every second one of under 2,000 tokens: three longer ones are a tenth of all tokens and sway the
means), with a history of its answers to 0 to 599 and 40 other models', 10.8 M tokens. With 64
nodes: REST of all of it, 86.9 MB (65 MB at two bytes for each id), 1.65 tokens per call; CREST
ranked, 0.52 MB 1.77, 2.1 MB 1.94, 7.8 MB 2.02; all together 2.47, and 1.97 with 8 nodes. With the
longer ones, in a history of 3.0 M tokens and 4.2 MB, all together 2.56 and 2.05. Mixing n-grams by
fitted weights, finer probabilities and a longer memory of the chat were tried on prompts 500 to
599: none gained as much as 0.5 %. On every third answer of Vicuna-7B to MT-Bench, with the first
stores: REST 1.63; CREST 1.71 with 0.52 MB, 1.96 with 7.8 MB; all together 2.82, and 2.18 with 8.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np

from app.bench.crest_stores import LONGEST_MATCH, PROMPT, RANKED, RECYCLE, REST, Case
from datastores.crest_reader import CrestReader
from datastores.rest import RestStore
from engines.drafters.crest import Crest, LongestMatch
from engines.drafters.prompt import PromptLookup
from engines.drafters.protocol import Context, Drafter
from engines.drafters.recycle import TokenRecycling
from engines.drafters.rest import Rest
from engines.replay import Combined, Recorded, Tally, replay

BUDGETS = (1, 4, 8, 16, 32, 64)
TIMED = 2000
"""Positions at which lookups are timed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case at one budget, as reported.

    Attributes:
        method: prompt, recycle, rest, crest or all.
        selection: what the store holds and how it is drafted from.
        budget: draft tokens for each call.
        store_bytes: of all its files.
        entries: n-grams, or positions of the suffix array; max_n: the longest looked up.
        tokens_per_call: the accepted length, counted as in `bench decode`.
        mean_acceptance_rate: accepted ÷ drafted chain length for each answer, averaged.
        lookup_us_median, lookup_us_p99: of a store's lookup; of the whole proposal where there is
            no store.
        build_seconds: of the store, tokenising aside.
    """

    method: str
    selection: str
    budget: int
    store_bytes: int
    entries: int
    max_n: int
    tokens_per_call: float
    mean_acceptance_rate: float
    drafted_per_call: float
    lookup_us_median: float
    lookup_us_p99: float
    build_seconds: float


def make_drafter(case: Case) -> Drafter:
    """A fresh drafter for `case`."""
    if case.way == PROMPT:
        return PromptLookup()
    if case.way == RECYCLE:
        return TokenRecycling()
    assert case.path is not None
    if case.way == REST:
        return Rest(RestStore(case.path))
    reader = CrestReader(case.path)
    if case.way == RANKED:
        return Crest(reader, recalls=False)
    if case.way == LONGEST_MATCH:
        return LongestMatch(reader)
    return Combined([PromptLookup(), TokenRecycling(), Crest(reader)])


def run(
    cases: Iterable[Case], recordings: Sequence[Recorded], jobs: int
) -> Iterator[tuple[Case, dict[int, Tally]]]:
    """Replay every case, `jobs` at a time while the next stores are built; in the order given."""
    # Not forked: the parent has threads that sort.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _keep, (recordings,)) as pool:
        started = [(case, pool.submit(_replayed, case)) for case in cases]
        for case, future in started:
            yield case, future.result()


def rows(case: Case, tallies: dict[int, Tally], recordings: Sequence[Recorded]) -> list[Row]:
    """The case's rows, one for each budget and each way to count its bytes."""
    median, late = lookup_times(case, recordings)
    drafting = ", longest match" if case.way == LONGEST_MATCH else ""
    return [
        Row(
            case.method,
            ", ".join(filter(None, (case.selection + drafting, counted))),
            budget,
            size,
            case.entries,
            case.longest,
            tally.tokens_per_call,
            tally.mean_acceptance_rate,
            tally.drafted_per_call,
            median,
            late,
            case.seconds,
        )
        for counted, size in case.sizes
        for budget, tally in tallies.items()
    ]


def lookup_times(case: Case, recordings: Sequence[Recorded]) -> tuple[float, float]:
    """Median and 99th percentile in µs, of lookups at random positions with a cold cache."""
    draw = random.Random(0)
    drafter = make_drafter(case)
    reader = CrestReader(case.path) if case.path and case.method == "crest" else None
    seconds = []
    for _ in range(TIMED):
        recorded = draw.choice(recordings)
        said = [*recorded.prompt, *recorded.answer]
        tokens = said[: draw.randrange(len(recorded.prompt) + 1, len(said) + 1)]
        if reader is None:
            context = Context(tokens, np.zeros(0, dtype=np.float32), 0.0)
            drafter.begin(context)
            drafter.propose(context, 1)
            started = perf_counter()
            drafter.propose(context, BUDGETS[-1])
        else:
            started = perf_counter()
            reader.lookup(tokens)
        seconds.append(perf_counter() - started)
    return float(np.median(seconds)) * 1e6, float(np.percentile(seconds, 99)) * 1e6


def report(rows: Sequence[Row], history_tokens: int, recordings: Sequence[Recorded]) -> object:
    """The object of `--json`."""
    return {
        "history_tokens": history_tokens,
        "test_tokens": sum(len(one.answer) for one in recordings),
        "rows": [asdict(row) for row in rows],
    }


_recordings: Sequence[Recorded] = ()
"""In a worker process: what is replayed, sent once."""


def _keep(recordings: Sequence[Recorded]) -> None:
    global _recordings
    _recordings = recordings


def _replayed(case: Case) -> dict[int, Tally]:
    tallies, _ = replay(make_drafter(case), _recordings, BUDGETS)
    return tallies
