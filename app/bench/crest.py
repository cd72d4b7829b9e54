"""`python -m app.bench crest`: CREST against REST and the other drafters, on recorded answers.

Compares what the paper compares (crest.txt, section 5): REST of all the history and of parts of it
(figures 6 and 7); the most common n-grams of one n (figure 8) and of all n up to a maximum, the
same number of each (figure 9), of which the longest match is drafted. specchat's own selection is
measured at the same sizes, and shares them with the suffix index of all the history. The paper's
trees are packed in specchat's format, so only the selections differ.

With Llama-3.1-8B's answers to every second prompt of AlpacaEval from 600 on, and 10.8 M tokens of
history: REST 1.65 tokens per step from 65 MB; CREST 1.77 from 0.52 MB and 2.02 from 7.8 MB; all
drafters 2.47 with 64 nodes and 1.97 with 8. Mixing n-grams by fitted weights, finer probabilities
and a longer memory of the chat each gained less than 0.5 %.
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
from app.bench.environment import fill_suffixes
from datastores.crest.build import MAX_NGRAM as OWN_LONGEST
from datastores.crest.build import BuiltStore, count, select
from datastores.crest.counting import CountedStrings
from datastores.crest.reader import CrestReader
from datastores.crest.store import IDENTITY_BYTES, MIN_BUDGET_BYTES, CrestStore
from datastores.crest.texts import TokenText
from datastores.suffix_reader import SuffixReader
from datastores.token_cache import PLACE_BYTES, TokenCache
from datastores.winnowing import MIN_SURE_TOKENS
from engines.drafter_simulation import CombinedDrafter, Recorded, SimulationCounts, simulate
from engines.drafters.crest import CrestDrafter
from engines.drafters.prompt_lookup import PromptLookup
from engines.drafters.protocol import Drafter
from engines.drafters.suffix import SuffixDrafter
from engines.drafters.token_recycling import TokenRecycling
from engines.step import Context

LONGEST = 5
"""The paper's largest n."""
SHARES = (16, 4)
"""REST is also built from every 16th and every 4th message."""
PROMPT, RECYCLE, REST, SUFFIX, CREST, ALL = "prompt", "recycle", "rest", "suffix", "crest", "all"
LONGEST_MATCH = ", longest match"


@dataclass(frozen=True, slots=True)
class Case:
    """One store and one way of drafting from it.

    Attributes:
        method: one of the six above.
        selection: what the store holds, for display; after it, `LONGEST_MATCH` where CREST drafts
            the longest match alone, as in the paper.
        path: the store's file or folder; None if there is no store.
        size: bytes on disk; of the suffix index without the token ids, which are there anyway.
        entries: n-grams of a CREST store, positions of a suffix array, places of the suffix index.
        longest: n of the longest n-grams looked up.
        seconds: to build it, without tokenising.
        suffixes: the suffix index that drafts beside CREST; None without it.
    """

    method: str
    selection: str
    path: Path | None = None
    size: int = 0
    entries: int = 0
    longest: int = 0
    seconds: float = 0.0
    suffixes: Path | None = None

    def beside(self, suffix: Case) -> Case:
        """The same CREST store with the suffix index and everything else."""
        return replace(
            self,
            method=ALL,
            selection=f"{self.selection} + suffix index",
            size=self.size + suffix.size,
            suffixes=suffix.path,
        )

    def with_longest_match(self) -> Case:
        """The same store, of which the longest match is drafted."""
        return replace(self, selection=self.selection + LONGEST_MATCH)


def cases(folder: Path, history: Sequence[TokenText], sizes: Sequence[int]) -> Iterator[Case]:
    """Build every store in `folder`, one after the other; each is yielded when it is built.

    Every n of the paper's figures is tried at the second to fourth of `sizes`.
    """
    yield Case(PROMPT, "this chat")
    yield Case(RECYCLE, "this chat")
    for share in (*SHARES, 1):
        # Identities are digests, so each share is random.
        part = [text for text in history if text.identity[0] % share == 0]
        yield _rest(folder, part, share)
    suffix = _suffix(folder, history)
    yield suffix
    started = perf_counter()
    counted = count(history, max(sizes), LONGEST)
    builder = Builder(folder, counted, history, perf_counter() - started)
    for size in sizes:
        own = builder.own(size)
        yield own
        yield replace(own, method=ALL)
        if size - suffix.size >= MIN_BUDGET_BYTES:
            yield builder.own(size - suffix.size).beside(suffix)
        if own.size > size // 2:
            yield from _papers(builder, size, figures=size in (sizes[1:4] or sizes))


def _papers(builder: Builder, size: int, *, figures: bool) -> Iterator[Case]:
    """The paper's selections of one size: longest match, and ranked as specchat does."""
    ours = builder.paper(f"equal t, n<={OWN_LONGEST}", size, range(1, OWN_LONGEST + 1))
    yield ours
    yield ours.with_longest_match()
    for longest in range(1, LONGEST + 1) if figures else ():
        if longest != OWN_LONGEST:
            upto = builder.paper(f"equal t, n<={longest}", size, range(1, longest + 1))
            yield upto.with_longest_match()
        if longest > 1:
            single = builder.paper(f"top t, n={longest}", size, (longest,))
            yield single.with_longest_match()


def _rest(folder: Path, history: Sequence[TokenText], share: int) -> Case:
    """REST, with two bytes for each id if they suffice, as in its authors' code, else four."""
    largest = max((int(max(text.tokens)) for text in history if len(text.tokens)), default=0)
    place = folder / f"rest-{share}"
    place.mkdir()
    started = perf_counter()
    write_rest(place, history, 2 if largest < 65535 else 4)
    seconds = perf_counter() - started
    store = RestStore(place)
    selection = "all" if share == 1 else f"1/{share} of the messages"
    return Case(REST, selection, place, store.size(), len(store), REST_LONGEST, seconds)


def _suffix(folder: Path, history: Sequence[TokenText]) -> Case:
    """The suffix index of all the history."""
    path = folder / "tokens.db"
    started = perf_counter()
    with closing(TokenCache.open(path)) as cache:
        fill_suffixes(cache, history)
        places = int(cache.store.rows("SELECT sum(places) AS n FROM texts")[0]["n"])
    seconds = perf_counter() - started
    return Case(SUFFIX, "all", path, places * PLACE_BYTES, places, MIN_SURE_TOKENS, seconds)


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
        return Case(CREST, selection, path, used, built.entry_count, built.longest, seconds)


BUDGETS = (1, 4, 8, 16, 32, 64)
TIMED_LOOKUPS = 2000


@dataclass(frozen=True, slots=True)
class CrestRow:
    """One case at one budget of draft tokens for each step, as reported.

    Attributes:
        tokens_per_step: the accepted length, counted as in `bench decode`.
        mean_acceptance_rate: accepted ÷ drafted chain length for each answer, averaged.
        lookup_us_median, lookup_us_p99: of a CREST store's lookup, or else of the whole proposal.
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
    if case.method == PROMPT:
        return PromptLookup()
    if case.method == RECYCLE:
        return TokenRecycling()
    assert case.path is not None
    if case.method == REST:
        return RestDrafter(RestStore(case.path))
    if case.method == SUFFIX:
        return SuffixDrafter(SuffixReader(case.path))
    reader = CrestReader(case.path)
    if case.method == ALL:
        suffix = [SuffixDrafter(SuffixReader(case.suffixes))] if case.suffixes else []
        return CombinedDrafter([PromptLookup(), TokenRecycling(), *suffix, CrestDrafter(reader)])
    if case.selection.endswith(LONGEST_MATCH):
        return LongestMatch(reader)
    return CrestDrafter(reader, use_context=False)


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
    """The case's rows, one for each budget."""
    median, late = lookup_times(case, recordings)
    return [
        CrestRow(
            method=case.method,
            selection=case.selection,
            budget=budget,
            store_bytes=case.size,
            entries=case.entries,
            max_n=case.longest,
            tokens_per_step=count.tokens_per_step,
            mean_acceptance_rate=count.mean_acceptance_rate,
            drafted_per_step=count.drafted_per_step,
            lookup_us_median=median,
            lookup_us_p99=late,
            build_seconds=case.seconds,
        )
        for budget, count in counts.items()
    ]


def lookup_times(case: Case, recordings: Sequence[Recorded]) -> tuple[float, float]:
    """Median and 99th percentile in µs, of lookups at random positions with a cold cache."""
    draw = random.Random(0)
    drafter = make_drafter(case)
    reader = CrestReader(case.path) if case.path and case.method == CREST else None
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
        "test_tokens": sum(len(recorded.answer) for recorded in recordings),
        "rows": [asdict(row) for row in rows],
    }


_recordings: Sequence[Recorded] = ()
"""What a worker process simulates, received once."""


def _set_recordings(recordings: Sequence[Recorded]) -> None:
    global _recordings
    _recordings = recordings


def _simulated(case: Case) -> dict[int, SimulationCounts]:
    counts, _ = simulate(make_drafter(case), _recordings, BUDGETS)
    return counts
