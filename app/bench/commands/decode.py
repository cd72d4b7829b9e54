"""Options and output of the benchmarks that answer chats: `specchat bench decode` and `growth`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TextIO

import click

from app.bench.baselines import DraftShape
from app.bench.commands.shared import (
    FILE,
    Comparison,
    DraftShapeParam,
    drafter_sets,
    plot_option,
    progress,
    until_interrupted,
    workload_options,
)
from app.bench.decode import PLAIN, REREAD, DecodeRow, run, summarise, verify_ms
from app.bench.environment import (
    DRAFT_MODEL,
    GIVEN,
    KNOWN,
    MAX_ROWS,
    WAYS,
    Bench,
    PriorChats,
    Sets,
    bench_stores,
    loaded_with_model,
    require_all,
    uses_history,
    widest,
)
from app.bench.forced import forced
from app.bench.growth import Growth, grow, summarise_growth
from app.bench.report import growth_svg
from app.bench.workloads import Workload, read_chats, read_workload
from app.bench.yardstick import rechunked
from app.cli.global_options import RenamedOption
from app.cli.output import Row, table
from app.config import Options
from app.engine.engine import Engine
from app.engine.loading import load, with_drafters
from app.machine import machine
from engines.llama.enlarge import Enlargement

COLUMNS = {
    "drafters": "",
    "history": "",
    "shape": "",
    "fixed": "",
    "chats": "d",
    "tokens": "d",
    "steps": "d",
    "tokens_per_step": ".2f",
    "acceptance_rate": ".0%",
    "mean_acceptance_rate": ".0%",
    "draft_length": ".1f",
    "speedup": ".2f",
    "total_speedup": ".2f",
    "bound": ".2f",
    "of_best_fixed": ".2f",
    "of_hindsight": ".2f",
    "overhead_ms_per_step": ".3f",
    "identical": ".0%",
    "largest_fork_gap": ".2g",
}


@click.command()
@workload_options(default="none, all")
@click.option(
    "--history",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Chats to draft from, one JSON object per line; repeatable, to compare.",
)
@click.option(
    "--answers",
    "ways",
    multiple=True,
    type=click.Choice(WAYS),
    help="Answers in the history: the file's, or the model's own; repeatable. [default: given]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=DraftShapeParam(),
    help="N drafts of M tokens at every step, however unlikely; repeatable.",
)
@click.option(
    "--fixed",
    "lengths",
    multiple=True,
    type=click.IntRange(0, MAX_ROWS - 1),
    metavar="N",
    help="Compare the automatic draft length with N tokens at every step; repeatable.",
)
@click.option(
    "--draft-model",
    cls=RenamedOption,
    former=["--student"],
    type=FILE,
    metavar="FILE",
    help="Draft model file. [default: the one in the settings]",
)
@click.option(
    "--recorded",
    is_flag=True,
    help="Write the workload's own answers, such as code, at the model's cost; greedy.",
)
@click.option(
    "--yardstick/--no-yardstick",
    default=True,
    help="Also answer without drafts after reading the prompt in other chunks: how alike two plain"
    " answers are.  [default: on]",
)
@click.pass_obj
def decode(
    options: Options,
    asked: Comparison,
    history: tuple[Path, ...],
    ways: tuple[str, ...],
    shapes: tuple[DraftShape, ...],
    lengths: tuple[int, ...],
    draft_model: Path | None,
    recorded: bool,
    yardstick: bool,
) -> None:
    """Compare sets of drafters on the same chats.

    Each set answers each chat in turn. Speed-ups are medians over chats of paired ratios to plain
    decoding, total speed-ups ratios of the time of all chats; the bound assumes that verifying is
    the only cost. The overhead is the time per step outside the target, a draft model's passes
    included; it is also given for each drafter. Ctrl-C prints the results so far.

    `identical` is the share of answers that equal the plain ones token for token. The row "plain,
    prompt read in other chunks" is its yardstick: rounding alone changes that many answers, without
    any draft. It is left out with --recorded, where all answers are given.

    The benchmark has stores of its own, which do not change during the run: empty, or filled from a
    history, whose unanswered questions are answered first. `rest`, a suffix array of the history,
    can be compared with specchat's drafters.

    With --recorded, the answers are those of the workload, so that texts can be measured that the
    model would not write: every pass is the model's own, but the recorded token counts as drawn.
    """
    chats = read_workload(asked.workload, recorded=recorded)[: asked.limit]
    named = _named(asked.sets)
    rows = widest(max((options.draft_tokens or 0, *lengths)), shapes)
    options = replace(options, drafters=_loaded(named, draft_model))
    engine = load(options, larger=asked.larger, rows=rows)
    with engine.busy:
        costs = verify_ms(engine.target)
    engine = forced(engine) if recorded else engine
    plain = DecodeRow(PLAIN, with_drafters(engine, (), 0))
    with ExitStack() as opened:
        pasts = list(_pasts(opened, plain.engine, named, history, ways))
        bench = Bench(engine, options.draft_tokens, draft_model)
        compared = [plain, *_rows(bench, named, pasts, shapes, lengths)]
        other = [DecodeRow(REREAD, rechunked(plain.engine))] if yardstick and not recorded else []
        with until_interrupted(), progress(len(chats), "chats") as advance:
            for done in run(compared, chats, engine.defaults.sampling, *other):
                advance(done)
    summaries = [
        summarise(row, plain, engine.defaults.sampling, costs, _fixed(row, compared))
        for row in [plain, *other, *compared[1:]]
        if row.chats
    ]
    click.echo(_report(engine, asked, costs, summaries))


def _named(sets: tuple[str, ...]) -> Sets:
    """Each set except plain decoding, which is always measured."""
    return drafter_sets([name for name in sets or ("all",) if name != PLAIN], KNOWN)


def _loaded(named: Sets, draft_model: Path | None) -> tuple[str, ...]:
    """The drafters that come with the model; a draft model in a file of its own does not."""
    names = loaded_with_model(named.values())
    return tuple(name for name in names if name != DRAFT_MODEL or draft_model is None)


def _pasts(
    opened: ExitStack, plain: Engine, named: Sets, files: Sequence[Path], ways: Sequence[str]
) -> Iterator[PriorChats]:
    """Stores filled from each file in each way, or empty ones if there is no file."""
    needed = sorted({name for names in named.values() for name in names})
    histories = [(file.name, tuple(read_chats(file))) for file in files] or [("", ())]
    for (name, chats), way in product(histories, ways or (GIVEN,)):
        stores = opened.enter_context(bench_stores(plain, needed))
        past = PriorChats(f"{name}, {way}" if name and ways else name, stores, chats, way)
        with progress(len(chats) + 1, past.name or "stores") as advance:
            for done, _ in enumerate(past.fill(plain), 1):
                advance(done)
        yield past


def _rows(
    bench: Bench,
    named: Sets,
    pasts: Sequence[PriorChats],
    shapes: Sequence[DraftShape],
    lengths: Sequence[int],
) -> Iterator[DecodeRow]:
    """Each set in every shape or length, with every history that the set drafts from."""
    drafts = [(shape, None) for shape in shapes or (None,)] + [(None, length) for length in lengths]
    for (label, names), (shape, fixed) in product(named.items(), drafts):
        for past in pasts if uses_history(names) else pasts[:1]:
            engine = bench.equipped(names, past.stores, shape, fixed)
            name = past.name if uses_history(names) else ""
            yield DecodeRow(label, engine, name, str(shape) if shape else "", fixed)


def _fixed(row: DecodeRow, rows: Sequence[DecodeRow]) -> list[DecodeRow]:
    """The rows with fixed lengths that an automatic one is compared with."""
    automatic = row.fixed is None and not row.shape
    return [
        one
        for one in rows
        if automatic
        and one.fixed is not None
        and (one.drafters, one.history) == (row.drafters, row.history)
    ]


def _report(
    engine: Engine,
    asked: Comparison,
    costs: dict[str, float],
    summaries: list[dict[str, object]],
) -> str:
    model = f"{engine.name}{asked.larger}"
    if asked.as_json:
        head = {"model": model, "fingerprint": engine.target.fingerprint, "machine": machine()}
        return json.dumps({**head, "verify_ms": costs, "rows": summaries})
    verify = "  ".join(f"V({rows}) {cost:.2f}" for rows, cost in costs.items())
    optional = ("history", "shape", "fixed", "of_best_fixed", "of_hindsight")
    unused = {name for name in optional if all(row[name] in ("", None) for row in summaries)}
    columns = {name: spec for name, spec in COLUMNS.items() if name not in unused}
    if not summaries:
        return model
    return f"{model}   {verify} ms\n\n{table(summaries, columns)}\n\n{_overheads(summaries)}"


def _overheads(summaries: Sequence[Row]) -> str:
    """The mean overhead of each row by part, in milliseconds per step."""
    lines = []
    for row in summaries:
        parts = row["overhead_ms_by_part"]
        assert isinstance(parts, dict)
        text = "  ".join(f"{part} {milliseconds:.3f}" for part, milliseconds in parts.items())
        setting = (row["history"], row["shape"], row["fixed"])
        named = " ".join(str(value) for value in setting if value not in ("", None))
        lines.append(f"overhead of {row['drafters']}{' ' + named if named else ''}: {text} ms")
    return "\n".join(lines)


GROWTH_COLUMNS = {
    "chats": "d",
    "tokens_per_step": ".2f",
    "tokens_per_step_empty": ".2f",
    "new": "d",
    "tokens_per_step_new": ".2f",
    "speedup": ".2f",
    "speedup_empty": ".2f",
    "total_speedup": ".2f",
    "total_speedup_empty": ".2f",
}


@click.command()
@workload_options(default="all")
@plot_option("the curves")
@click.pass_obj
def growth(options: Options, asked: Comparison, plot: TextIO | None) -> None:
    """Answer months of chats; each is then drafted from.

    Compares growing stores with empty ones, in windows of 20 chats. Your own stores are not used.
    Ctrl-C prints the results so far.
    """
    chats = read_workload(asked.workload)[: asked.limit]
    named = drafter_sets(asked.sets or ("all",))
    loaded = replace(options, drafters=loaded_with_model(named.values()))
    engine = load(loaded, larger=asked.larger, rows=widest(options.draft_tokens))
    rows = [
        _grown(engine, name, names, options.draft_tokens, chats) for name, names in named.items()
    ]
    if plot:
        plot.write(growth_svg(rows))
    if asked.as_json:
        size = {"wider": asked.wider, "deeper": asked.deeper}
        click.echo(json.dumps({"model": engine.name, **size, "rows": rows}))
    else:
        shown = (_windows_text(row, asked.larger) for row in rows if row["windows"])
        click.echo("\n\n".join(shown))


def _grown(
    engine: Engine,
    name: str,
    names: tuple[str, ...],
    draft_tokens: int | None,
    chats: Sequence[Workload],
) -> dict[str, object]:
    """The figures of one set of drafters, up to the end or Ctrl-C."""
    with bench_stores(engine, names) as stores:
        full = DecodeRow(name, with_drafters(engine, names, draft_tokens, stores.resources))
        require_all(names, full.engine.drafters, engine)
        empty = DecodeRow(name, with_drafters(engine, (), draft_tokens))
        plain = DecodeRow(PLAIN, with_drafters(engine, (), 0))
        grown = Growth(names, stores, full, empty, plain)
        with until_interrupted(), progress(len(chats), name) as advance:
            for done in grow(grown, chats, engine.defaults.sampling):
                advance(done)
    return summarise_growth(grown)


def _windows_text(row: Row, larger: Enlargement) -> str:
    windows = row["windows"]
    assert isinstance(windows, list)
    return f"{row['drafters']}{larger}\n{table(windows, GROWTH_COLUMNS)}"
