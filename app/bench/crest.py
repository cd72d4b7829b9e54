"""`python -m app.bench crest`: CREST against REST and the other drafters, on recorded answers.

Compares what the paper compares (crest.txt, section 5): REST of all the history and of parts of it
(figures 6 and 7); the most common n-grams of one n (figure 8) and of all n up to a maximum, equally
many of each (figure 9), drafted from by the longest match. specchat's own selection is measured at
the same sizes. The paper's trees are packed in specchat's format, so only the selections differ.

Owns the stores that are compared and the rows of the report; the walk over the answers is
`engines.drafter_simulation`'s.

Measured with the Llama-2 tokenizer on answers to AlpacaEval's prompts 600 to 804 by Llama-3.1-8B
(every second one of under 2,000 tokens: three longer ones are a tenth of all tokens and sway the
means), with a history of its answers to 0 to 599 and 40 other models', 10.8 M tokens. With 64
nodes: REST of all of it, 86.9 MB (65 MB at two bytes for each id), 1.65 tokens per step; CREST
ranked, 0.52 MB 1.77, 2.1 MB 1.94, 7.8 MB 2.02; all together 2.47, and 1.97 with 8 nodes. With the
longer ones, a history of 3.0 M tokens and 4.2 MB, all together 2.56 and 2.05. Mixing n-grams by
fitted weights, finer probabilities and a longer memory of the chat were tried on prompts 500 to
599: none gained as much as 0.5 %. On every third answer of Vicuna-7B to MT-Bench, with the first
stores: REST 1.63; CREST 1.71 with 0.52 MB, 1.96 with 7.8 MB; all together 2.82, and 2.18 with 8.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from app.bench.baselines import MAX_MATCH_TOKENS as REST_LONGEST
from app.bench.baselines import LongestMatch, RestDrafter, RestStore, select_within, write_rest
from datastores.crest.build import MAX_NGRAM as OWN_LONGEST
from datastores.crest.build import BuiltStore, count, select
from datastores.crest.counting import CountedStrings, TokenText
from datastores.crest.reader import CrestReader
from datastores.crest.store import IDENTITY_BYTES, CrestStore
from engines.drafter_simulation import CombinedDrafter, Recorded, SimulationCounts, simulate
from engines.drafters.crest import CrestDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.token_recycling import TokenRecycling
from engines.step import Context

LONGEST = 5
"""The paper's largest n."""
SHARES = (16, 4)
"""REST is also built from one in so many messages."""

PROMPT, RECYCLE, REST, RANKED, LONGEST_MATCH, ALL = (
    "prompt",
    "recycle",
    "rest",
    "ranked",
    "longest",
    "all",
)
"""Ways of drafting."""


@dataclass(frozen=True, slots=True)
class Case:
    """One store and one way of drafting from it.

    Attributes:
        method: prompt, recycle, rest, crest or all, as reported.
        selection: what the store holds, for display.
        way: one of the ways of drafting.
        path: the store's file or folder; None if there is no store.
        sizes: bytes on disk by what is counted; REST has two.
        entries: n-grams of a CREST store, positions of a suffix array.
        longest: n of the longest n-grams looked up.
        seconds: to build it, without tokenising.
    """

    method: str
    selection: str
    way: str
    path: Path | None = None
    sizes: tuple[tuple[str, int], ...] = (("", 0),)
    entries: int = 0
    longest: int = 0
    seconds: float = 0.0


def cases(folder: Path, history: Sequence[TokenText], sizes: Sequence[int]) -> Iterator[Case]:
    """Build every store in `folder`, one after the other; each is yielded when it is built.

    Every n of the paper's figures is tried at the second to fourth of `sizes`.
    """
    yield Case("prompt", "this chat", PROMPT)
    yield Case("recycle", "this chat", RECYCLE)
    for share in (*SHARES, 1):
        # Identities are digests, so each share is random.
        part = [one for one in history if one.identity[0] % share == 0]
        yield _rest(folder, part, share)
    started = perf_counter()
    counted = count(history, max(sizes), LONGEST)
    builder = Builder(folder, counted, history, perf_counter() - started)
    for size in sizes:
        own = builder.own(size)
        yield own
        yield replace(own, method="all", way=ALL)
        if own.sizes[0][1] > size // 2:
            yield from _papers(builder, size, figures=size in (sizes[1:4] or sizes))


def _papers(builder: Builder, size: int, *, figures: bool) -> Iterator[Case]:
    """The paper's selections of one size: longest match, and ranked as specchat does."""
    ours = builder.paper(f"equal t, n<={OWN_LONGEST}", size, range(1, OWN_LONGEST + 1))
    yield ours
    yield replace(ours, way=LONGEST_MATCH)
    for longest in range(1, LONGEST + 1) if figures else ():
        if longest != OWN_LONGEST:
            upto = builder.paper(f"equal t, n<={longest}", size, range(1, longest + 1))
            yield replace(upto, way=LONGEST_MATCH)
        if longest > 1:
            single = builder.paper(f"top t, n={longest}", size, (longest,))
            yield replace(single, way=LONGEST_MATCH)


def _rest(folder: Path, history: Sequence[TokenText], share: int) -> Case:
    """REST, with the size of its files at four bytes for each id, and at two if they suffice."""
    sizes, seconds = [], 0.0
    small = max((int(max(one.tokens)) for one in history if len(one.tokens)), default=0) < 65535
    for width in (2, 4) if small else (4,):
        place = folder / f"rest-{share}-{width}"
        place.mkdir()
        started = perf_counter()
        write_rest(place, history, width)
        seconds = perf_counter() - started
        sizes.append((f"{width}-byte ids", RestStore(place).size()))
    selection = "all" if share == 1 else f"1/{share} of the messages"
    positions = len(RestStore(place))
    return Case("rest", selection, REST, place, tuple(sizes), positions, REST_LONGEST, seconds)


class Builder:
    """Builds CREST stores of several sizes from n-grams counted once."""

    def __init__(
        self,
        folder: Path,
        counted: CountedStrings,
        history: Sequence[TokenText],
        seconds: float,
    ) -> None:
        """Build in `folder`; counting took `seconds`."""
        self._folder = folder
        self._counted = counted
        self._shorts = {text.identity[:IDENTITY_BYTES] for text in history}
        self._seconds = seconds
        self._number = 0

    def own(self, size: int) -> Case:
        """specchat's selection."""
        return self._case("worth", size, lambda room: select(self._counted, room, OWN_LONGEST))

    def paper(self, selection: str, size: int, lengths: Sequence[int]) -> Case:
        """The paper's, from n-grams of `lengths`."""
        return self._case(selection, size, lambda room: select_within(self._counted, lengths, room))

    def _case(self, selection: str, size: int, build: Callable[[int], BuiltStore]) -> Case:
        """A store of at most `size` bytes in specchat's format, text identities included."""
        self._number += 1
        path = self._folder / f"crest-{self._number}.db"
        started = perf_counter()
        built = build(size - IDENTITY_BYTES * len(self._shorts))
        with closing(CrestStore.open(path, size)) as store:
            store.replace(built, self._shorts)
        seconds = self._seconds + perf_counter() - started
        used = sum(file.stat().st_size for file in self._folder.glob(f"{path.name}*"))
        return Case(
            "crest",
            selection,
            RANKED,
            path,
            (("", used),),
            built.entry_count,
            built.longest,
            seconds,
        )


BUDGETS = (1, 4, 8, 16, 32, 64)
TIMED_LOOKUPS = 2000


@dataclass(frozen=True, slots=True)
class CrestRow:
    """One case at one budget, as reported.

    Attributes:
        method: prompt, recycle, rest, crest or all.
        selection: what the store holds and how it is drafted from.
        budget: draft tokens for each step.
        store_bytes: of all its files.
        entries: n-grams, or positions of the suffix array; max_n: the longest looked up.
        tokens_per_step: the accepted length, counted as in `bench decode`.
        mean_acceptance_rate: accepted ÷ drafted chain length for each answer, averaged.
        lookup_us_median, lookup_us_p99: of a store's lookup; of the whole proposal if there is no
            store.
        build_seconds: of the store, without tokenising.
    """

    method: str
    selection: str
    budget: int
    store_bytes: int
    entries: int
    max_n: int
    tokens_per_step: float
    mean_acceptance_rate: float
    drafted_per_step: float
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
        return RestDrafter(RestStore(case.path))
    reader = CrestReader(case.path)
    if case.way == RANKED:
        return CrestDrafter(reader, use_context=False)
    if case.way == LONGEST_MATCH:
        return LongestMatch(reader)
    return CombinedDrafter([PromptLookup(), TokenRecycling(), CrestDrafter(reader)])


def run(
    cases: Iterable[Case], recordings: Sequence[Recorded], jobs: int
) -> Iterator[tuple[Case, dict[int, SimulationCounts]]]:
    """Simulate every case, `jobs` at a time, while the next stores are built; in the given
    order."""
    # Not forked: the parent has threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _set_recordings, (recordings,)) as pool:
        started = [(case, pool.submit(_simulated, case)) for case in cases]
        for case, future in started:
            yield case, future.result()


def rows(
    case: Case, counts: dict[int, SimulationCounts], recordings: Sequence[Recorded]
) -> list[CrestRow]:
    """The case's rows, one for each budget and each way to count its bytes."""
    median, late = lookup_times(case, recordings)
    drafting = ", longest match" if case.way == LONGEST_MATCH else ""
    return [
        CrestRow(
            case.method,
            ", ".join(filter(None, (case.selection + drafting, counted))),
            budget,
            size,
            case.entries,
            case.longest,
            count.tokens_per_step,
            count.mean_acceptance_rate,
            count.drafted_per_step,
            median,
            late,
            case.seconds,
        )
        for counted, size in case.sizes
        for budget, count in counts.items()
    ]


def lookup_times(case: Case, recordings: Sequence[Recorded]) -> tuple[float, float]:
    """Median and 99th percentile in µs, of lookups at random positions with a cold cache."""
    draw = random.Random(0)
    drafter = make_drafter(case)
    reader = CrestReader(case.path) if case.path and case.method == "crest" else None
    seconds = []
    for _ in range(TIMED_LOOKUPS):
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


def report(rows: Sequence[CrestRow], history_tokens: int, recordings: Sequence[Recorded]) -> object:
    """The object of `--json`."""
    return {
        "history_tokens": history_tokens,
        "test_tokens": sum(len(one.answer) for one in recordings),
        "rows": [asdict(row) for row in rows],
    }


_recordings: Sequence[Recorded] = ()
"""What a worker process simulates, sent to it once."""


def _set_recordings(recordings: Sequence[Recorded]) -> None:
    global _recordings
    _recordings = recordings


def _simulated(case: Case) -> dict[int, SimulationCounts]:
    counts, _ = simulate(make_drafter(case), _recordings, BUDGETS)
    return counts
