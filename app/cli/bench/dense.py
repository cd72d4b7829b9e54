"""`specchat bench dense`: keys for dense drafting and the filter by the next token, compared."""

from __future__ import annotations

import json
from pathlib import Path

import click

from app.bench.report import table
from app.bench.workloads import read_workload
from app.config import Options

COLUMNS = {
    "keys": "",
    "filter": "",
    "states": "d",
    "recall_at_10": ".3f",
    "tokens_per_draft": ".2f",
    "search_ms_median": ".3f",
    "bytes_per_key": "d",
}


@click.command()
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    required=True,
    help="Chats, one JSON object per line, whose answers give the states.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N chats.", metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.pass_obj
def dense(options: Options, workload: Path, limit: int | None, as_json: bool) -> None:
    """Compare keys for drafting from past states.

    States of a workload's last answers look for similar ones among the others: with small keys or
    whole states, filtered by the next token during or after the search.
    """
    from app.bench.dense import compare, gather
    from app.engine.engine import load, with_drafters

    engine = load(options)
    states = gather(with_drafters(engine, (), 0), read_workload(workload)[:limit], engine.sampling)
    rows = compare(states, engine.target.vocabulary_size)
    click.echo(json.dumps({"rows": rows}) if as_json else table(rows, COLUMNS))
