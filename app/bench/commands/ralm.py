"""`python -m app.bench ralm`: options and output of the benchmark of retrieval while generating."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TextIO

import click

from app.bench.commands.shared import (
    Comparison,
    drafter_sets,
    number_option,
    plot_option,
    progress,
    until_interrupted,
    workload_options,
)
from app.bench.environment import Sets, bench_stores, loaded_with_model, uses_history
from app.bench.knn import KnnRow, read_states
from app.bench.knn import answer as answer_in_words
from app.bench.questions import read_questions
from app.bench.ralm import (
    RalmAnswer,
    RalmRow,
    Row,
    answer,
    drafts_inside,
    latency_per_query,
    past_chats,
    retrieval_ratio,
    run,
    summarise,
)
from app.bench.ralm_corpus import (
    APPROXIMATE,
    EXACT,
    PRODUCT,
    RETRIEVERS,
    knowledge_base,
    product_base,
)
from app.bench.ralm_rows import Loaded
from app.bench.ralm_tables import PLAIN, TABLES, paper_tables
from app.bench.report import Chart, svg
from app.bench.workloads import read_workload
from app.cli.output import table
from app.config import Options
from app.engine.loading import load
from app.machine import machine
from datastores.errors import InputError
from engines.llama.enlarge import Enlargement
from engines.ralm.speculative import PREFETCH, PREFETCH_FAR

BATCHES = (1, 2, 4, 8, 16)
GRADED = '"question"'
"""In the first line of a file of questions of `bench docs`, and of no file of chats."""
COLUMNS = {
    "method": "",
    "drafters": "",
    "identical": ".0%",
    "seconds": ".3f",
    "generation": ".3f",
    "encoding": ".3f",
    "retrieval": ".3f",
    "hidden": ".3f",
    "changes": ".0%",
    "accuracy": ".0%",
    "stride": ".1f",
    "rollbacks": ".1f",
    "passes": ".0f",
    "speedup": ".2f",
    "deviation": ".2f",
    "cpu_speedup": ".2f",
    "bound": ".2f",
}

IDENTITY_COLUMNS = {
    name: COLUMNS.get(name, "")
    for name in ("method", "drafters", "answers", "identical", "changes", "accuracy", "rollbacks")
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """What every row does: answer `questions` in `tokens` tokens each, `runs` times.

    Attributes:
        past: questions answered before, for drafts from their answers.
        texts: folder to retrieve from.
        corpus: number of passages, or states, that are searched.
    """

    questions: Sequence[str]
    past: Sequence[str]
    texts: Path
    retriever: str
    corpus: int
    tokens: int
    runs: int

    @property
    def setting(self) -> dict[str, object]:
        """What is reported with the figures."""
        shared = {"tokens": self.tokens, "runs": self.runs, "past": len(self.past)}
        return {"retriever": self.retriever, **shared}


@click.command()
@workload_options(default="none, and those that need no history")
@click.option(
    "--texts",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Markdown and text files to retrieve from.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Chats, one JSON object per line, whose first questions are answered before; crest and"
    " dense draft from those answers and from the texts.",
)
@click.option(
    "--retriever",
    type=click.Choice(RETRIEVERS),
    default=EXACT,
    show_default=True,
    help="Exact dense, approximate dense, or sparse (BM25), over vectors or words that are made up;"
    " or as answers search the texts.  --workload may be questions of bench docs.",
)
@number_option(
    "--corpus",
    default=100_000,
    help="Passages to search: those of the texts, filled up with random ones.",
)
@number_option(
    "--reach",
    default=PREFETCH + 8,
    help="Candidates that adr keeps during a search: recall against time.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    type=click.Choice(list(TABLES)),
    metavar="NAME",
    help="Methods of the paper's table 1 or 4 (subsets of P, S, A: speed-ups or seconds), 2"
    " (prefetch) or 5 (strides), or P, S and A together (full); repeatable.  [default: 1, 4]",
)
@number_option("--tokens", default=128, help="Length of each answer.")
@number_option("--runs", default=5, help="Runs of each answer.")
@click.option(
    "--identity",
    is_flag=True,
    help="Only check that the texts are the same; the KV cache is kept, so times mean nothing."
    " Fails if one differs; without --exact, near-ties can cause that.",
)
@click.option(
    "--knn",
    is_flag=True,
    help="Compare KNN-LM over k (figure 5) instead, on the model's states for the files.",
)
@plot_option("the speed-ups by stride and the latency by batch")
@click.pass_obj
def ralm(
    options: Options,
    asked: Comparison,
    texts: Path,
    history: Path | None,
    retriever: str,
    corpus: int,
    reach: int,
    tables: tuple[str, ...],
    tokens: int,
    runs: int,
    identity: bool,
    knn: bool,
    plot: TextIO | None,
) -> None:
    """Compare iterative retrieval with speculative retrieval.

    Both write the same text, up to rounding. The first question of each chat is answered by RaLMSeq
    and by RaLMSpec with prefetching (P), the stride scheduler OS3 (S) and asynchronous verification
    (A). Speed-ups are paired, and the bound is what the ratio of search time to writing time
    allows. Ctrl-C prints the results so far.
    """
    questions = _first_questions(asked.workload)[: asked.limit]
    past = _first_questions(history) if history else []
    experiment = Experiment(
        questions, past, texts, retriever, corpus, tokens, 1 if identity else runs
    )
    named = drafter_sets(asked.sets or (PLAIN, "prompt,recycle"))
    _require_use_of_history(named, past)
    if knn:
        _require_vectors(retriever, others=bool(tables or plot or identity or history))
    with _loaded(options, named, asked.larger) as loaded:
        if knn:
            _compare_knn(loaded, experiment, asked.as_json)
            return
        tables = tables or ("1", "4")
        rows, reach = loaded.rows(tables), max(reach, _least_reach(tables))
        figures, batches, passages = _measure(
            options, loaded, rows, experiment, reach, warm=identity
        )
    if not figures:
        return
    if plot:
        plot.write(svg(_charts(figures, batches)))
    setting = experiment.setting | {"passages": passages}
    if asked.as_json:
        setting |= {"wider": asked.wider, "deeper": asked.deeper}
        click.echo(_as_json(rows, figures, batches, setting))
    else:
        click.echo("\n".join(_lines(rows, figures, batches, setting, tables)))
    if identity:
        _require_identity(figures)


def _first_questions(workload: Path) -> list[str]:
    if GRADED in workload.read_text("utf-8", "replace").partition("\n")[0]:
        return [question.text for question in read_questions(workload)]
    return [chat.questions[0] for chat in read_workload(workload)]


def _require_vectors(retriever: str, *, others: bool) -> None:
    """Check the options of --knn; `others` says whether some that it excludes are given."""
    if retriever not in (EXACT, APPROXIMATE) or others:
        raise InputError(
            "--knn needs --retriever edr or adr, and excludes --table, --plot, --identity and"
            " --history"
        )


def _require_use_of_history(named: Sets, past: Sequence[str]) -> None:
    """Check that some drafter uses --history, if given."""
    if past and not any(map(uses_history, named.values())):
        raise InputError("--history needs --drafters with crest or dense: others do not use it")


def _least_reach(tables: Sequence[str]) -> int:
    """The longest prefetch and a margin."""
    return (PREFETCH_FAR if "2" in tables else PREFETCH) + 8


def _measure(
    options: Options,
    loaded: Loaded,
    rows: Sequence[RalmRow],
    experiment: Experiment,
    reach: int,
    *,
    warm: bool,
) -> tuple[list[dict[str, object]], dict[str, float], int]:
    """The rows' figures, milliseconds per query by size of batch, and the number of passages.

    Args:
        warm: keep the KV cache from answer to answer, where times do not count; no query is timed.
    """
    with ExitStack() as opened:
        if experiment.retriever == PRODUCT:
            base, passages = opened.enter_context(product_base(options, experiment.texts))
        else:
            base, passages = knowledge_base(
                experiment.texts, experiment.retriever, experiment.corpus, reach
            )
        loaded.fill(experiment.texts, past_chats(rows[0], base, experiment.past, experiment.tokens))
        batches = {} if warm else latency_per_query(base, experiment.questions, BATCHES)

        def answered(row: RalmRow, question: str) -> RalmAnswer:
            return answer(row, base, question, experiment.tokens, warm=warm)

        _run(rows, experiment, answered, experiment.retriever)
        return [summarise(row, rows[0]) for row in rows if row.runs], batches, passages


def _as_json(
    rows: Sequence[RalmRow],
    figures: Sequence[Mapping[str, object]],
    batches: Mapping[str, float],
    setting: Mapping[str, object],
) -> str:
    ratio, inside = retrieval_ratio(rows[0]), drafts_inside(rows)
    measured = {"r": ratio, "ms_per_query": batches, "rows": figures, "drafts_inside": inside}
    return json.dumps({"model": rows[0].engine.name, **setting, "machine": machine(), **measured})


def _lines(
    rows: Sequence[RalmRow],
    figures: Sequence[Mapping[str, object]],
    batches: Mapping[str, float],
    setting: Mapping[str, object],
    tables: Sequence[str],
) -> Iterator[str]:
    """The figures for people; without `batches`, only the texts were compared."""
    yield table(figures, COLUMNS if batches else IDENTITY_COLUMNS)
    over = f"{setting['retriever']} over {setting['passages']} passages"
    if not batches:
        yield over
        return
    per_query = ", ".join(f"{ms:.2f} in {number}" for number, ms in batches.items())
    yield f"{over}; r = {retrieval_ratio(rows[0]):.2f}; ms per query: {per_query}"
    yield from (f"\n{shown}" for shown in paper_tables(figures, tables))
    if inside := drafts_inside(rows):
        shown = {"drafts_inside": "", "over_drafts": ".2f", "over_retrieval": ".2f"}
        yield f"\n{table(inside, shown)}"


@contextmanager
def _loaded(options: Options, named: Sets, larger: Enlargement) -> Iterator[Loaded]:
    """A loaded model and empty stores, removed at the end of the block."""
    engine = load(replace(options, drafters=loaded_with_model(named.values())), larger=larger)
    names = list(dict.fromkeys(chain(*named.values())))
    with bench_stores(engine, names) as stores:
        yield Loaded(engine, stores, named, options.draft_tokens)


def _compare_knn(loaded: Loaded, experiment: Experiment, as_json: bool) -> None:
    """Run KNN-LM and print its figures; speed-ups are over the sequential row of the same k."""
    loaded.fill(experiment.texts)
    rows = loaded.knn_rows()
    engine, approximate = loaded.engine, experiment.retriever == APPROXIMATE
    with engine.busy:
        states = read_states(engine, experiment.texts, experiment.corpus, approximate=approximate)

    def answered(row: KnnRow, question: str) -> RalmAnswer:
        return answer_in_words(row, states, question, experiment.tokens)

    _run(rows, experiment, answered, f"knn {experiment.retriever}")
    plain = {row.neighbours: row for row in reversed(rows) if not row.method.speculates}
    if not rows[0].runs:
        return
    figures = [{"k": row.neighbours, **summarise(row, plain[row.neighbours])} for row in rows]
    ratios = {k: retrieval_ratio(row) for k, row in plain.items()}
    if as_json:
        setting = experiment.setting | {"states": len(states)}
        measured = {"r": ratios, "machine": machine(), "rows": figures}
        click.echo(json.dumps({"model": engine.name, **setting, **measured}))
    else:
        click.echo(table(figures, {"k": "", **COLUMNS}))
        listed = ", ".join(f"{ratio:.2f} at k = {k}" for k, ratio in sorted(ratios.items()))
        click.echo(f"{experiment.retriever} over {len(states)} states; r = {listed}")


def _run(
    rows: Sequence[Row],
    experiment: Experiment,
    answer: Callable[[Row, str], RalmAnswer],
    label: str,
) -> None:
    """Fill the rows' runs, with all questions or those before Ctrl-C."""
    questions, runs = experiment.questions, experiment.runs
    with until_interrupted(), progress(len(rows) * len(questions) * runs, label) as advance:
        for done in run(rows, questions, runs, answer):
            advance(done)
    _keep_common_answers(rows)


def _keep_common_answers(rows: Sequence[RalmRow]) -> None:
    """Drop the answers to a question that some row has not answered."""
    answered = min((len(row.runs[-1]) for row in rows if row.runs), default=0)
    for row in rows:
        row.runs = [*row.runs[:-1], *(run[:answered] for run in row.runs[-1:] if answered)]


def _require_identity(figures: Sequence[Mapping[str, object]]) -> None:
    """Fail if a method's texts are not those of RaLMSeq."""
    for row in figures:
        if row["identical"] != 1.0:
            raise InputError(
                f"{row['method']} with drafters {row['drafters']} wrote other texts than RaLMSeq:"
                " use --exact, since otherwise near-ties of two tokens may fall either way"
            )


def _charts(figures: Sequence[Mapping[str, object]], batches: Mapping[str, float]) -> list[Chart]:
    """Speed-up against the mean stride, and the latency of a query against its batch's size."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in figures:
        stride, speedup = row["stride"], row["speedup"]
        assert isinstance(stride, float)
        assert isinstance(speedup, float)
        lines[f"{row['method']}, {row['drafters']}"] = [(stride, speedup)]
    latency = {"search": [(float(size), ms) for size, ms in batches.items()]}
    return [
        Chart("Speed-up over RaLMSeq", "mean speculation stride", "times as fast", lines),
        Chart("Batched search", "queries in a batch", "ms per query", latency),
    ]
