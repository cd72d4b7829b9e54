"""`specchat bench growth`: options and output of the benchmark of growth."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import click

from app.bench.environment import STUDENT, bench_stores, widest
from app.bench.growth import Growth, grow, summarise
from app.bench.report import Row, growth_svg, table
from app.bench.workloads import Workload, read_workload
from app.cli.bench.commands import plot_option, workload_options
from app.cli.global_options import DrafterNames
from app.config import Options
from app.engine.engine import Engine, load, with_drafters
from engines.llama.enlarge import Enlargement

COLUMNS = {
    "chats": "d",
    "tokens_per_call": ".2f",
    "tokens_per_call_empty": ".2f",
    "new": "d",
    "tokens_per_call_new": ".2f",
    "speedup": ".2f",
    "speedup_empty": ".2f",
}


@click.command()
@workload_options(default="all")
@plot_option("the curves")
@click.pass_obj
def growth(
    options: Options,
    workload: Path,
    sets: tuple[str, ...],
    limit: int | None,
    wider: int,
    deeper: int,
    as_json: bool,
    plot: TextIO | None,
) -> None:
    """Replay months of chats: each is answered, then drafted from.

    By windows of 20 chats, with full and with empty stores, paired. The stores are the benchmark's
    own. Ctrl-C prints what is done.
    """
    chats = read_workload(workload)[:limit]
    kind = DrafterNames()
    named = {name: kind.convert(name, None, None) for name in sets or ("all",)}
    rows_at_most = widest(options.draft_tokens)
    own = any(STUDENT in names for names in named.values())
    larger = Enlargement(wider, deeper)
    engine = load(replace(options, drafters=(STUDENT,) * own), larger=larger, rows=rows_at_most)
    rows = [_row(engine, name, named[name], options.draft_tokens, chats) for name in named]
    if plot:
        plot.write(growth_svg(rows))
    if as_json:
        size = {"wider": wider, "deeper": deeper}
        click.echo(json.dumps({"model": engine.name, **size, "rows": rows}))
    else:
        click.echo("\n\n".join(_text(row, str(larger)) for row in rows if row["windows"]))


def _row(
    engine: Engine,
    name: str,
    names: tuple[str, ...],
    draft_tokens: int | None,
    chats: Sequence[Workload],
) -> dict[str, object]:
    """The figures of one set of drafters, up to the end or Ctrl-C."""
    with bench_stores(engine, names) as stores:
        full = with_drafters(engine, names, draft_tokens, stores.stores)
        replayed = Growth(name, names, full, with_drafters(engine, (), draft_tokens), stores)
        try:
            with click.progressbar(length=len(chats), label=name, file=sys.stderr) as bar:
                for _ in grow(replayed, with_drafters(engine, (), 0), chats, engine.sampling):
                    bar.update(1)
        except KeyboardInterrupt:
            click.echo("interrupted: figures of the finished chats", err=True)
    return summarise(replayed)


def _text(row: Row, added: str) -> str:
    windows = row["windows"]
    assert isinstance(windows, list)
    return f"{row['drafters']}{added}\n{table(windows, COLUMNS)}"
