"""`specchat bench dense`: keys and kinds of index for dense drafting, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.bench.report import table
from app.bench.workloads import read_workload
from app.config import Options

if TYPE_CHECKING:
    from app.bench.dense import BenchMaterial

KINDS = ("flat", "sq", "pq", "ivf", "hnsw", "partitioned")
NORMS = ("none", "z", "unit", "both")
COLUMNS = {
    "material": "",
    "dims": "d",
    "norm": "",
    "kind": "",
    "vectors": "d",
    "explained": ".0%",
    "mrr": ".3f",
    "recall_at_10": ".3f",
    "filtered_recall_at_10": ".3f",
    "search_ms_median": ".3f",
    "bytes_per_token": ".0f",
    "build_per_second": ".0f",
}


@click.command()
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    help="Chats, one JSON a line, whose answers give real states.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N chats.", metavar="N")
@click.option(
    "--dims",
    multiple=True,
    type=click.IntRange(min=2),
    help="Components of a real state's key; may be given again. [default: 32, 64, 96, 128]",
)
@click.option(
    "--norm",
    "norms",
    multiple=True,
    type=click.Choice(NORMS),
    help="Normalisation of a real state; may be given again. [default: all]",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.IntRange(min=1000),
    help="Synthetic keys; may be given again. [default: 100000, 1000000]",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    help="A kind of index; may be given again. [default: all]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
@click.pass_obj
def dense(
    options: Options,
    workload: Path | None,
    limit: int | None,
    dims: tuple[int, ...],
    norms: tuple[str, ...],
    sizes: tuple[int, ...],
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare keys and kinds of index for drafting from past states.

    Real states come from answering a workload; what concerns size is measured on synthetic
    clustered keys of 64 dimensions. Ctrl-C prints what is done.
    """
    rows: list[dict[str, object]] = []
    shapes = list(product(dims or (32, 64, 96, 128), norms or NORMS))
    try:
        for row in _rows(options, workload, limit, shapes, sizes, kinds or KINDS):
            rows.append(row)
            click.echo(f"{len(rows)} measured", err=True)
    except KeyboardInterrupt:
        click.echo("interrupted: figures of what is done", err=True)
    click.echo(json.dumps({"rows": rows}) if as_json else table(rows, COLUMNS))


def _rows(
    options: Options,
    workload: Path | None,
    limit: int | None,
    shapes: list[tuple[int, str]],
    sizes: tuple[int, ...],
    kinds: tuple[str, ...],
) -> Iterator[dict[str, object]]:
    from app.bench.dense import clustered, gather, project
    from app.engine.engine import equip, load

    if workload:
        engine = load(options)
        plain = equip(engine, (), 0)
        states = gather(plain, read_workload(workload)[:limit], engine.sampling)
        materials = (project(states, dimensions, norm) for dimensions, norm in shapes)
        yield from _each_kind(materials, kinds)
    defaults = () if workload else (100_000, 1_000_000)
    yield from _each_kind(map(clustered, sizes or defaults), kinds)


def _each_kind(
    materials: Iterable[BenchMaterial], kinds: tuple[str, ...]
) -> Iterator[dict[str, object]]:
    from app.bench.dense import ground_truth, measure

    for material in materials:
        truth = ground_truth(material)
        for kind in kinds:
            yield measure(material, truth, kind)
