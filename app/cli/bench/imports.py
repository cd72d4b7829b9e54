"""`specchat bench import`: options and output of the benchmark of small imports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from app.bench.imports import ImportCost, fill, measure
from app.bench.report import table
from app.config import Options, load_config
from app.engine.engine import model_path
from app.locations import locate

DEFAULT_DOCUMENTS = "0,10000,100000"
COLUMNS = {
    "documents": "d",
    "tokens": "d",
    "store_bytes": "d",
    "added_s": ".2f",
    "changed_s": ".2f",
    "forgotten_s": ".2f",
    "traces": "d",
}


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers of documents, separated by commas: 0,10000."""

    name = "numbers"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Numbers in ascending order, without repeats."""
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isdecimal() for part in parts):
            self.fail(f"{value!r} is not a list of numbers such as {DEFAULT_DOCUMENTS}", param, ctx)
        return tuple(sorted(set(map(int, parts))))


@click.command("import")
@click.option(
    "--documents",
    type=Numbers(),
    default=DEFAULT_DOCUMENTS,
    show_default=True,
    metavar="N,…",
    help="Notes that are stored before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.pass_obj
def import_(options: Options, documents: tuple[int, ...], as_json: bool) -> None:
    """Measure what one note costs: importing, changing and forgetting it.

    In CPU seconds of the whole command, beside so many other notes; 100,000 take minutes to store
    first. The stores are the benchmark's own. `traces` counts files that still hold a word of the
    forgotten note. Ctrl-C prints what is done.
    """
    locations = locate(options.data_dir)
    config = load_config(locations.settings)
    model = model_path(options, config, locations)
    found: list[ImportCost] = []
    try:
        for cost in _costs(model, config.crest.max_bytes, documents):
            found.append(cost)
    except KeyboardInterrupt:
        click.echo("interrupted: figures of what is finished", err=True)
    rows = [asdict(cost) for cost in found]
    click.echo(table(rows, COLUMNS))
    if as_json:
        click.echo(json.dumps({"model": model.name, "rows": rows}))


def _costs(model: Path, budget: int, documents: Sequence[int]) -> Iterator[ImportCost]:
    from engines.llama.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(model)
    with TemporaryDirectory(prefix="specchat-bench-") as root:
        for number in documents:
            folder = Path(root) / str(number)
            with click.progressbar(length=number, label=f"{number:,}", file=sys.stderr) as bar:
                for done in fill(locate(folder), vocabulary, budget, number):
                    bar.update(done - bar.pos)
            yield measure(folder, model, vocabulary.fingerprint, number)
