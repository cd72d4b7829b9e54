"""`specchat bench growth`: the product's headline, measured."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from app.bench.growth import Growth, grow, summarise
from app.bench.stores import bench_stores
from app.bench.table import table
from app.bench.workload import read_workload
from app.cli.choices import DrafterNames
from app.cli.workload_options import workload_options
from app.engine import equip, load
from app.options import Options

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
@click.pass_obj
def growth(
    options: Options,
    workload: Path,
    sets: tuple[str, ...],
    limit: int | None,
    deepen: int,
    as_json: bool,
) -> None:
    """Replay months of chats: each is answered, then drafted from.

    By windows of 20 chats, with full and with empty stores, paired. The stores are the benchmark's
    own. Ctrl-C prints what is done.
    """
    chats = read_workload(workload)[:limit]
    kind = DrafterNames()
    engine = load(options, deepen=deepen, light=True)
    plain = equip(engine, (), 0)
    rows = []
    for name in dict.fromkeys(sets or ("all",)):
        names = kind.convert(name, None, None)
        with ExitStack() as opened:
            stores = opened.enter_context(bench_stores(engine, names))
            length = options.draft_tokens
            grown = equip(engine, names, length, stores.stores)
            replayed = Growth(name, names, grown, stores, length)
            bar = click.progressbar(length=len(chats), label=name, file=sys.stderr)
            try:
                with bar:
                    for _ in grow(replayed, plain, chats, engine.sampling):
                        bar.update(1)
            except KeyboardInterrupt:
                click.echo("interrupted: figures of the chats that are done", err=True)
            rows.append(summarise(replayed))
    for row in rows:
        windows = row["windows"]
        assert isinstance(windows, list)
        if windows and not as_json:
            added = f", {deepen} layers added" if deepen else ""
            click.echo(f"\n{row['drafters']}{added}\n{table(windows, COLUMNS)}")
    if as_json:
        click.echo(json.dumps({"model": engine.name, "deepened": deepen, "rows": rows}))
