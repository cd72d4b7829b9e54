"""`python -m app.bench ralm`: RaLMSeq against RaLMSpec with every subset of P, S and A, paired.

Every method answers every question, one right after the other in rotating order, from an empty KV
cache, with the end token suppressed; a run begins with a fresh stride scheduler. Speed-ups are
ratios to RaLMSeq without drafts: of wall time, and of CPU time, which other programs on the machine
do not change but which counts an overlapped search in full. The corpus and the model determine r,
the ratio of search time to writing time; r and the stride bound the speed-up
(`engines.ralm.stride_rates.speedup_bound`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field, fields
from statistics import mean, median, stdev
from time import perf_counter, process_time
from typing import TypeVar

from app.bench.ralm_tables import FULL, PLAIN, SEQUENTIAL, RalmMethod
from app.conversation.iterative import make_request
from app.engine.engine import Engine
from engines.chat_template.prompt_builder import Message
from engines.decode import StopCriteria
from engines.ralm.events import ConfirmedStride, RalmStatistics
from engines.ralm.knowledge_base import KnowledgeBase
from engines.ralm.scheduler import StrideScheduler
from engines.ralm.sequential import write_iteratively
from engines.ralm.speculative import SpeculativeRalm
from engines.ralm.stride_rates import speedup_bound
from engines.ralm.stride_writer import RalmRequest, StrideWriter, passage_id

NO_END = frozenset({-1})
"""The end token is suppressed: all answers have one length."""


@dataclass(frozen=True, slots=True)
class RalmAnswer:
    """One answer and what it cost."""

    tokens: tuple[int, ...]
    passages: tuple[int | None, ...]
    seconds: float
    cpu_seconds: float
    statistics: RalmStatistics


@dataclass(slots=True)
class RalmRow:
    """One method with one set of drafters, and its answers by run and question.

    Attributes:
        scheduler: one per run, like a session: estimates carry over between answers.
    """

    method: RalmMethod
    drafters: str
    engine: Engine
    runs: list[list[RalmAnswer]] = field(default_factory=list)
    scheduler: StrideScheduler = field(init=False)

    def begin_run(self) -> None:
        """Begin another run with a fresh scheduler."""
        self.runs.append([])
        self.scheduler = self.method.scheduler()

    def answers(self) -> list[RalmAnswer]:
        """All answers in one list."""
        return [answer for run in self.runs for answer in run]


Row = TypeVar("Row", bound=RalmRow)


def run(
    rows: Sequence[Row],
    questions: Sequence[str],
    runs: int,
    answer: Callable[[Row, str], RalmAnswer],
) -> Iterator[int]:
    """Have `answer` answer every question `runs` times with every row, in rotating order.

    Yields the number of answers so far.
    """
    done = 0
    for number in range(runs):
        for row in rows:
            row.begin_run()
        for index, question in enumerate(questions):
            turn = (index + number) % len(rows)
            for row in (*rows[turn:], *rows[:turn]):
                row.runs[-1].append(answer(row, question))
                done += 1
                yield done


def answer(
    row: RalmRow,
    base: KnowledgeBase,
    question: str,
    tokens: int,
    *,
    ends: frozenset[int] = NO_END,
    warm: bool = False,
) -> RalmAnswer:
    """Answer `question` in `tokens` tokens, or up to one of `ends`.

    Args:
        warm: keep the KV cache of the last answer, where times do not count.
    """
    engine, method = row.engine, row.method
    stop = StopCriteria(ends, tokens)
    request = make_request(engine, [Message("user", question)], engine.defaults.sampling, stop)
    statistics = RalmStatistics()
    with engine.busy:
        if not warm:
            engine.target.rewind(0)
        across = method.speculates and bool(engine.drafters)
        writer = StrideWriter(engine.target, engine.drafters, engine.budget, request, across=across)
        started, cpu = perf_counter(), process_time()
        strides = list(_strides(row, writer, base, request, statistics))
        seconds, cpu_seconds = perf_counter() - started, process_time() - cpu
    return RalmAnswer(
        tuple(token for stride in strides for step in stride.steps for token in step.tokens),
        tuple(passage_id(stride.passage) for stride in strides),
        seconds,
        cpu_seconds,
        statistics,
    )


def _strides(
    row: RalmRow,
    writer: StrideWriter,
    base: KnowledgeBase,
    request: RalmRequest,
    statistics: RalmStatistics,
) -> Iterator[ConfirmedStride]:
    method = row.method
    if not method.speculates:
        strides = write_iteratively(writer, base, request, statistics)
    else:
        strides = SpeculativeRalm(
            writer,
            base,
            request,
            row.scheduler,
            statistics,
            prefetch=method.prefetch,
            asynchronous=method.asynchronous,
        ).write()
    with closing(strides):
        yield from strides


def past_chats(
    row: RalmRow, base: KnowledgeBase, questions: Sequence[str], tokens: int
) -> Iterator[list[int]]:
    """Chats in which `row` answered `questions`, each as token ids without its passages."""
    engine = row.engine
    for question in questions:
        answered = answer(row, base, question, tokens, ends=engine.vocabulary.stops, warm=True)
        yield [*engine.render([Message("user", question)]), *answered.tokens]


def summarise(row: RalmRow, plain: RalmRow) -> dict[str, object]:
    """The row's figures; `plain` is RaLMSeq without drafts. Seconds are means over answers."""
    answers, pairs = row.answers(), list(zip(row.answers(), plain.answers(), strict=True))
    total = _total([one.statistics for one in answers])
    ratio = retrieval_ratio(plain)
    stride = row.method.stride or max(total.stride, 1.0)
    speedups = _speedups(row, plain)
    bound = speedup_bound(stride, ratio, asynchronous=row.method.asynchronous)
    return {
        "method": row.method.name,
        "drafters": row.drafters,
        "answers": len(answers),
        "identical": mean(one.tokens == other.tokens for one, other in pairs),
        "seconds": mean(one.seconds for one in answers),
        "generation": total.generation_s / len(answers),
        "encoding": (total.encoding_s + total.lookup_s) / len(answers),
        "retrieval": total.waited_s / len(answers),
        "hidden": (total.search_s - total.waited_s) / len(answers),
        "changes": total.changes / max(total.strides - len(answers), 1),
        "accuracy": total.accuracy,
        "stride": total.stride,
        "rollbacks": total.rollbacks / len(answers),
        "passes": total.passes / len(answers),
        "prefills": total.prefills / len(answers),
        "searches": total.searches / len(answers),
        "speedup": mean(speedups),
        "deviation": stdev(speedups) if len(speedups) > 1 else 0.0,
        "cpu_speedup": median(other.cpu_seconds / one.cpu_seconds for one, other in pairs),
        "bound": bound if row.method.speculates else 1.0,
    }


def drafts_inside(rows: Sequence[RalmRow]) -> list[dict[str, object]]:
    """The speed-ups of the best method with drafts over drafts alone and over itself without
    drafts, for each set of drafters with which both were measured."""
    by_name = {(row.method, row.drafters): row for row in rows if row.runs}
    without = by_name.get((FULL, PLAIN))
    return [
        {
            "drafts_inside": drafters,
            "over_drafts": mean(_speedups(both, by_name[SEQUENTIAL, drafters])),
            "over_retrieval": mean(_speedups(both, without)),
        }
        for (method, drafters), both in by_name.items()
        if without is not None and method == FULL and drafters != PLAIN
    ]


def retrieval_ratio(plain: RalmRow) -> float:
    """r: RaLMSeq's searching time ÷ all of its other time."""
    searching = sum(one.statistics.search_s for one in plain.answers())
    return searching / (sum(one.seconds for one in plain.answers()) - searching)


def latency_per_query(
    base: KnowledgeBase, questions: Sequence[str], sizes: Sequence[int], rounds: int = 5
) -> dict[str, float]:
    """Median milliseconds of a search ÷ queries in its batch, by the batch's size (figure 6)."""
    queries = [base.encode(question, None) for question in questions]
    times: dict[str, float] = {}
    for size in sizes:
        batch = [queries[at % len(queries)] for at in range(size)]
        taken = []
        for _ in range(rounds):
            started = perf_counter()
            base.search(batch, 1)
            taken.append(perf_counter() - started)
        times[str(size)] = round(1e3 * median(taken) / size, 3)
    return times


def _speedups(row: RalmRow, other: RalmRow) -> list[float]:
    """By run, the median over questions of paired ratios: no single answer decides."""
    return [
        median(its.seconds / one.seconds for one, its in zip(run, others, strict=True))
        for run, others in zip(row.runs, other.runs, strict=True)
    ]


def _total(statistics: Sequence[RalmStatistics]) -> RalmStatistics:
    names = [entry.name for entry in fields(RalmStatistics)]
    sums = (sum(values) for values in zip(*map(astuple, statistics), strict=True))
    return RalmStatistics(**dict(zip(names, sums, strict=True)))
