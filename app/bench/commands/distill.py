"""`python -m app.bench distill`: options and output of the benchmark of online distillation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import click

from app.bench.commands.shared import (
    FILE,
    json_option,
    limit_option,
    number_option,
    plot_option,
    progress,
    until_interrupted,
)
from app.bench.report import Chart, svg
from app.bench.workloads import Workload, read_workload
from app.cli.output import table
from app.config import Options
from app.engine.draft_model import (
    UNTRAINED,
    UNTRAINED_FILE,
    draft_model_file,
    open_draft_model,
    training_settings,
)
from app.engine.engine import Engine
from app.engine.loading import load, with_drafters
from app.locations import locate
from app.machine import machine
from app.models.gguf_files import model_parts
from datastores.errors import InputError

if TYPE_CHECKING:
    from app.bench.acceptance import StreamedAnswer
    from app.bench.distill import DistillBench, DistillRow
    from app.bench.trained import Trained
    from engines.distillation.trainer import TrainingSettings

LOSSES = ("forward-kl", "reverse-kl", "jsd", "tv", "lk")
OFFLINE_SHARES = (0.3, 0.5, 0.7, 1.0)
"""As in the paper."""
SEEDS = 10**6
"""Distance between the seeds of two streams: more than the answers of one."""
COLUMNS = {
    "draft_model": "",
    "questions": "",
    "answers": "d",
    "α": ".3f",
    "α at 0": ".3f",
    "α at 1": ".3f",
    "live_acceptance": ".3f",
    "tokens_per_step": ".2f",
}
SETS = {
    "new": "new",
    "late_new": "new, second half",
    "repeated": "repeated",
    "late_repeated": "repeated, second half",
    "again": "repeated, after the stream",
    "base_before": "known, before",
    "base_after": "known, after",
}
"""Keys of a row's figures, and their names in the table."""
SHIFTS = "α on new questions at each shift of topic, and answers until 90 % of the level before:"
SHIFT_COLUMNS = {
    "draft_model": "",
    "topic": "",
    "before": ".3f",
    "first": ".3f",
    "last": ".3f",
    "back": "d",
}


@click.command()
@click.option(
    "--workload",
    "workloads",
    required=True,
    multiple=True,
    type=FILE,
    help="Chats of one topic, one JSON object per line; repeatable, in order.",
)
@click.option("--base", type=FILE, help="Chats that the draft model knows, to measure forgetting.")
@click.option(
    "--draft-model", default="", metavar="FILE|new", help="Draft model. [default: its own]"
)
@number_option("--every", default=50, metavar="K", help="Answers between two rounds of training.")
@click.option(
    "--loss",
    "losses",
    multiple=True,
    type=click.Choice(LOSSES),
    help="Training loss; repeatable, to compare. [default: lk]",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Hold back every other chat, and train on 30 to 100 % of them before the stream.",
)
@click.option("--head", is_flag=True, help="Also train a draft head from scratch.")
@click.option("--per-topic", is_flag=True, help="Also train one draft model per file.")
@limit_option
@json_option
@plot_option("α over the stream")
@click.pass_obj
def distill(
    options: Options,
    workloads: tuple[Path, ...],
    base: Path | None,
    draft_model: str,
    every: int,
    losses: tuple[str, ...],
    offline: bool,
    head: bool,
    per_topic: bool,
    limit: int | None,
    as_json: bool,
    plot: TextIO | None,
) -> None:
    """Train a draft model on answers, topic after topic.

    Each answer is drafted for before it is learned from. α is the papers' Σ min(p, q) at the
    sampling settings, and at temperatures 0 and 1 without truncation; live acceptance is what
    specchat's rule accepts, and tokens per step count the whole tree. Repeated questions are asked
    once more after the stream. --limit applies to each file. The untrained draft model is the
    baseline; --head adds the n-gram drafters alone, and a head trained from scratch, alone and in
    one tree with the untrained draft model. Ctrl-C prints the results so far.
    """
    from app.bench.distill import DistillBench, Material, asked_again

    topics = {path.stem: read_workload(path)[:limit] for path in workloads}
    engine = with_drafters(load(replace(options, drafters=()), rows=32), (), 0)
    held_back = {name: chats[1::2] for name, chats in topics.items()} if offline else {}
    streamed = {name: chats[::2] if offline else chats for name, chats in topics.items()}
    known = {"base": read_workload(base)[:limit]} if base else {}
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        file = _draft_model_file(engine, draft_model, options, Path(folder))
        stream, again, others, knowns = (
            _answers(engine, part, label, seed)
            for part, label, seed in (
                (streamed, "stream", 0),
                (asked_again(streamed), "again", 1),
                (held_back, "offline", 2),
                (known, "base", 3),
            )
        )
        material = Material(stream, again, knowns)
        trained, heads = _trained(engine, file)
        bench = DistillBench(engine, engine.defaults.sampling, trained, material, every)
        first = training_settings(file)
        plans = [replace(first, loss=loss) for loss in losses or (first.loss,)]
        rows = list(_rows(bench, plans, others, heads if head else {}, per_topic=per_topic))
    if plot:
        plot.write(svg([_chart(rows)]))
    click.echo(_report(engine, rows, every, as_json))


def _trained(engine: Engine, file: Path) -> tuple[Trained, dict[str, Trained]]:
    """The draft model in `file`, and by name the heads, alone and in one tree with it."""
    from app.bench.trained import TrainedDraftModel, TrainedHead

    opened = partial(
        open_draft_model, vocabulary=engine.vocabulary, context_length=engine.target.context_length
    )
    sampling = engine.defaults.sampling
    head = partial(TrainedHead, engine.path, engine.target, engine.vocabulary, sampling)
    return TrainedDraftModel(file, opened, sampling), {
        "head": head(),
        "head and draft model": head(opened(file)),
    }


def _draft_model_file(engine: Engine, draft_model: str, options: Options, folder: Path) -> Path:
    """The draft model's file; a new one is written into `folder`."""
    if draft_model == UNTRAINED:
        from engines.distillation.untrained import write_untrained

        file = folder / UNTRAINED_FILE
        write_untrained(file, 1, *model_parts(engine.path))
        return file
    if draft_model and Path(draft_model).is_file():
        return Path(draft_model)
    found = draft_model_file(draft_model, engine.path, locate(options.data_dir))
    if found is None:
        raise InputError(f"{engine.name} has no draft model: choose one with --draft-model")
    return found


def _answers(
    engine: Engine, topics: Mapping[str, Sequence[Workload]], label: str, stream: int
) -> list[StreamedAnswer]:
    """All answers, drawn with seeds of their own for each stream."""
    from app.bench.distill import answers

    sampling = engine.defaults.sampling
    sampling = replace(sampling, seed=sampling.seed + stream * SEEDS)
    total = sum(len(chat.questions) for chats in topics.values() for chat in chats)
    found = []
    with progress(total, label) as advance:
        for answer in answers(engine, topics, sampling):
            found.append(answer)
            advance(len(found))
    return found


def _rows(
    bench: DistillBench,
    plans: Sequence[TrainingSettings],
    others: Sequence[StreamedAnswer],
    heads: Mapping[str, Trained],
    *,
    per_topic: bool,
) -> Iterator[DistillRow]:
    """Static, heads, online by each plan, one draft model per topic, and offline with each share of
    `others`; the last two follow the first plan."""
    from engines.distillation.head_trainee import HEAD

    yield bench.static()
    if heads:
        yield bench.static("n-grams", heads["head"])
    online = [(plan, False) for plan in plans] + [(plans[0], True)] * per_topic
    with until_interrupted():
        if heads:
            yield from _finished(bench, "online, head", bench.online_head(HEAD, heads))
        for settings, by_topic in online:
            rows = ([row] for row in bench.online(settings, by_topic=by_topic))
            yield from _finished(bench, f"online, {settings.loss}", rows)
        for share in OFFLINE_SHARES if others else ():
            yield bench.offline(share, others, plans[0])


def _finished(
    bench: DistillBench, label: str, learning: Iterator[list[DistillRow]]
) -> list[DistillRow]:
    """The rows when `learning` ends, with a progress bar up to there."""
    rows: list[DistillRow] = []
    with progress(len(bench.material.stream), label) as advance:
        for rows in learning:
            advance(len(rows[0].curve))
    return rows


def _chart(rows: Sequence[DistillRow]) -> Chart:
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for row in rows:
        summary: Any = row.summary()
        curve = summary["curve"]
        lines[row.name] = [(float(at), curve[at - 1]) for at in range(10, len(curve) + 1, 10)]
    return Chart("Acceptance (α) over the last 50 answers", "answers so far", "α", lines)


def _report(engine: Engine, rows: Sequence[DistillRow], every: int, as_json: bool) -> str:
    summaries: list[dict[str, Any]] = [row.summary() for row in rows]
    temperature = engine.defaults.sampling.temperature
    if as_json:
        head: dict[str, Any] = {"model": engine.name, "fingerprint": engine.target.fingerprint}
        head |= {"machine": machine(), "temperature": temperature, "every": every}
        return json.dumps({**head, "rows": summaries})
    levels = [
        {
            "draft_model": summary["draft_model"],
            "questions": label,
            "α": summary[key]["alpha"],
            **{f"α at {each}": alpha for each, alpha in summary[key]["alpha_at"].items()},
            **summary[key],
        }
        for summary in summaries
        for key, label in SETS.items()
        if summary[key]["answers"]
    ]
    shifts = [
        {"draft_model": summary["draft_model"], **shift}
        for summary in summaries
        for shift in summary["shifts"]
    ]
    costs = "\n".join(
        f"{summary['draft_model']}: {summary['versions']} versions,"
        f" {len(summary['refused'])} rounds"
        f" without one, from {summary['learned_tokens']} tokens, {summary['cpu_seconds']} s of CPU"
        + "".join(f"\n  no version: {reason}" for reason in dict.fromkeys(summary["refused"]))
        for summary in summaries
        if summary["learned_tokens"]
    )
    parts = [f"{engine.name}, temperature {temperature:g}", table(levels, COLUMNS)]
    if shifts:
        parts += [SHIFTS, table(shifts, SHIFT_COLUMNS)]
    return "\n\n".join([*parts, costs])
