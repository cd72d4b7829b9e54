"""`specchat bench decode`: sets of drafters side by side on the same chats."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from app.bench.decode import PLAIN, Row, run, summarise
from app.bench.table import table
from app.bench.verify import verify_ms
from app.bench.workload import read_workload
from app.cli.choices import DrafterNames
from app.cli.workload_options import workload_options
from app.engine import Engine, equip, load
from app.machine import machine
from app.options import Options

COLUMNS = {
    "drafters": "",
    "chats": "d",
    "tokens": "d",
    "tokens_per_call": ".2f",
    "acceptance_rate": ".0%",
    "mean_acceptance_rate": ".0%",
    "speedup": ".2f",
    "overhead_ms_per_call": ".3f",
    "identical": ".0%",
    "largest_fork_gap": ".2g",
}


@click.command()
@workload_options(default="none, all")
@click.pass_obj
def decode(
    options: Options,
    workload: Path,
    sets: tuple[str, ...],
    limit: int | None,
    deepen: int,
    as_json: bool,
) -> None:
    """Compare sets of drafters on the same chats.

    Each set answers each chat, in turns. Speed-ups are medians over chats of paired ratios to plain
    decoding. Ctrl-C prints what is done.
    """
    chats = read_workload(workload)[:limit]
    named = _named(sets)
    engine = load(options, deepen=deepen)
    costs = verify_ms(engine.target)
    rows = [Row(name, equip(engine, drafters, options.draft_tokens)) for name, drafters in named]
    try:
        with click.progressbar(length=len(chats), label="chats", file=sys.stderr) as bar:
            for _ in run(rows, chats, engine.sampling):
                bar.update(1)
    except KeyboardInterrupt:
        click.echo("interrupted: figures of the chats that are done", err=True)
    summaries = [summarise(row, rows[0], engine.sampling) for row in rows if row.chats]
    click.echo(_report(engine, deepen, costs, summaries, as_json))


def _named(sets: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each set by its name on the command line; plain decoding first, always."""
    names = dict.fromkeys((PLAIN, *(sets or ("all",))))
    kind = DrafterNames()
    return [(name, kind.convert(name, None, None)) for name in names]


def _report(
    engine: Engine,
    deepen: int,
    costs: dict[str, float],
    summaries: list[dict[str, object]],
    as_json: bool,
) -> str:
    model = engine.name + (f" + {deepen} added layers" if deepen else "")
    verify = "  ".join(f"V({rows}) {cost:.2f}" for rows, cost in costs.items())
    text = f"{model}   {verify} ms\n\n{table(summaries, COLUMNS)}" if summaries else model
    if not as_json:
        return text
    return json.dumps(
        {
            "model": model,
            "fingerprint": engine.target.fingerprint,
            "machine": machine(),
            "verify_ms": costs,
            "rows": summaries,
        }
    )
