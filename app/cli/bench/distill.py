"""`specchat bench distill`: options and output of the benchmark of online distillation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

import click

from app.bench.report import Chart, svg, table
from app.bench.workloads import Workload, read_workload
from app.cli.bench.commands import plot_option
from app.config import Options
from app.engine.engine import Engine, load, with_drafters
from app.engine.student import open_student, student_file
from app.locations import locate
from app.machine import machine
from datastores.errors import InputError

if TYPE_CHECKING:
    from app.bench.distill import Classroom, DistillRow, StreamedAnswer

UNTRAINED = "new"
"""Instead of a student's file: one with random weights."""
LOSSES = ("forward-kl", "reverse-kl", "jsd", "tv", "lk")
OFFLINE_SHARES = (0.3, 0.5, 0.7, 1.0)
"""The paper's."""
COLUMNS = {
    "student": "",
    "questions": "",
    "answers": "d",
    "alpha": ".3f",
    "live_acceptance": ".3f",
    "tokens_per_call": ".2f",
}
SETS = {
    "new": "new",
    "late_new": "new, second half",
    "repeated": "repeated",
    "late_repeated": "repeated, second half",
    "base_before": "known, before",
    "base_after": "known, after",
}
"""Keys of a row's figures, and what the table calls them."""
FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--workload",
    "workloads",
    required=True,
    multiple=True,
    type=FILE,
    help="Chats of one topic, one JSON object per line; repeatable, in order.",
)
@click.option("--base", type=FILE, help="Chats that the student knows: against forgetting.")
@click.option("--student", default="", metavar="FILE|new", help="Draft model. [default: its own]")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="K",
    help="Answers between two rounds of learning.",
)
@click.option(
    "--loss",
    "losses",
    multiple=True,
    type=click.Choice(LOSSES),
    help="What learning minimises; repeatable, to compare. [default: lk]",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Hold back every other chat, and learn from 30 to 100 % of them before the stream.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Chats of each file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@plot_option("α over the stream")
@click.pass_obj
def distill(
    options: Options,
    workloads: tuple[Path, ...],
    base: Path | None,
    student: str,
    every: int,
    losses: tuple[str, ...],
    offline: bool,
    limit: int | None,
    as_json: bool,
    plot: TextIO | None,
) -> None:
    """Let a draft model learn from a stream of answers, topic after topic.

    Each answer is drafted for before it is learned from. α is the papers' Σ min(p, q), live
    acceptance what specchat's rule accepts, tokens per call those of the whole tree. Beside the
    student that learns stands the one that does not. Ctrl-C prints what is done.
    """
    from engines.distillation.reader import write_untrained

    topics = {path.stem: read_workload(path)[:limit] for path in workloads}
    engine = with_drafters(load(replace(options, drafters=()), rows=32), (), 0)
    file = _student_file(engine, student, options)
    held_back = {name: chats[1::2] for name, chats in topics.items()} if offline else {}
    streamed = {name: chats[::2] if offline else chats for name, chats in topics.items()}
    known = {"base": read_workload(base)[:limit]} if base else {}
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        if student == UNTRAINED:
            write_untrained(file, Path(folder) / "student.gguf", 1)
            file = Path(folder) / "student.gguf"
        from app.bench.distill import Classroom

        stream, lessons, knowns = (
            _answers(engine, part, label)
            for part, label in ((streamed, "stream"), (held_back, "offline"), (known, "base"))
        )
        opened = partial(
            open_student,
            vocabulary=engine.vocabulary,
            context_length=engine.target.context_length,
        )
        room = Classroom(engine, engine.sampling, file, opened, stream, knowns, every)
        rows = list(_rows(room, losses or ("lk",), lessons))
    if plot:
        plot.write(svg([_chart(rows)]))
    click.echo(_report(engine, rows, every, as_json))


def _student_file(engine: Engine, student: str, options: Options) -> Path:
    named = "" if student == UNTRAINED else student
    file = student_file(named, engine.path, locate(options.data_dir))
    if named and Path(named).is_file():
        return Path(named)
    if file is None:
        raise InputError(f"{engine.name} has no draft model: give a --student")
    return file


def _answers(
    engine: Engine, topics: Mapping[str, Sequence[Workload]], label: str
) -> list[StreamedAnswer]:
    from app.bench.distill import answers

    total = sum(len(chat.questions) for chats in topics.values() for chat in chats)
    found = []
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        for answer in answers(engine, topics, engine.sampling):
            found.append(answer)
            bar.update(1)
    return found


def _rows(
    room: Classroom, losses: Sequence[str], lessons: Sequence[StreamedAnswer]
) -> Iterator[DistillRow]:
    """Static, online with each loss, and offline with each share where there are `lessons`."""
    from engines.distillation.trainer import TrainingSettings

    yield room.static()
    try:
        for loss in losses:
            row = None
            with click.progressbar(
                length=len(room.stream), label=f"online, {loss}", file=sys.stderr
            ) as bar:
                for row in room.online(TrainingSettings(loss=loss)):
                    bar.update(len(row.curve) - bar.pos)
            if row is not None:
                yield row
        for share in OFFLINE_SHARES if lessons else ():
            yield room.offline(share, lessons, TrainingSettings(loss=losses[0]))
    except KeyboardInterrupt:
        click.echo("interrupted: figures of the finished rows", err=True)


def _chart(rows: Sequence[DistillRow]) -> Chart:
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for row in rows:
        summary: Any = row.summary()
        curve = summary["curve"]
        lines[row.name] = [(float(at), curve[at - 1]) for at in range(10, len(curve) + 1, 10)]
    return Chart("Acceptance (α) over the last 50 answers", "answers so far", "α", lines)


def _report(engine: Engine, rows: Sequence[DistillRow], every: int, as_json: bool) -> str:
    summaries: list[dict[str, Any]] = [row.summary() for row in rows]
    temperature = engine.sampling.temperature
    if as_json:
        head: dict[str, Any] = {"model": engine.name, "fingerprint": engine.target.fingerprint}
        head |= {"machine": machine(), "temperature": temperature, "every": every}
        return json.dumps({**head, "rows": summaries})
    lines = [
        {"student": summary["student"], "questions": label, **summary[key]}
        for summary in summaries
        for key, label in SETS.items()
        if summary[key]["answers"]
    ]
    costs = "\n".join(
        f"{summary['student']}: {summary['versions']} versions, {len(summary['refused'])} rounds"
        f" without one, {summary['cpu_seconds']} s of CPU"
        for summary in summaries[1:]
    )
    return f"{engine.name}, temperature {temperature:g}\n\n{table(lines, COLUMNS)}\n\n{costs}"
