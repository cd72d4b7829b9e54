"""Options and output of the benchmarks of stores: `crest` and `import`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import click

from app.bench.commands.shared import (
    FILE,
    POSITIVE,
    json_option,
    limit_option,
    number_option,
    plot_option,
    progress,
    until_interrupted,
)
from app.bench.crest import Case, CrestRow, cases, report, rows, run
from app.bench.imports import ImportCost, fill, measure
from app.bench.report import crest_svg, crest_table
from app.bench.workloads import (
    Encoder,
    history_texts,
    load_encoder,
    recordings,
    simulated_chats,
    token_texts,
)
from app.cli.output import table
from app.config import Options, load_config
from app.engine.loading import model_path
from app.locations import locate
from datastores.crest.store import MIN_BUDGET_BYTES
from datastores.crest.texts import TokenText
from datastores.errors import InputError
from engines.draft_tree import CHATS
from engines.drafter_simulation import Recorded

DEFAULT_SIZES = "512K,2M,8M,32M,128M"
UNITS = {"K": 10, "M": 20, "G": 30}


class Sizes(click.ParamType[tuple[int, ...]]):
    """Bytes, separated by commas: 512K, 8M, 1G."""

    name = "sizes"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Sizes in ascending order, without repeats."""
        return tuple(sorted({self._bytes(part.strip(), param, ctx) for part in value.split(",")}))

    def _bytes(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number, shift = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 0)
        if not number.isdecimal() or int(number) << shift < MIN_BUDGET_BYTES:
            self.fail(f"{text!r} is not a size of {MIN_BUDGET_BYTES >> 10}K or more", param, ctx)
        return int(number) << shift


@click.command()
@click.option(
    "--simulate", "simulated", required=True, multiple=True, type=FILE, help="Answers to simulate."
)
@click.option("--history", required=True, multiple=True, type=FILE, help="Chats to draft from.")
@click.argument("more", nargs=-1, type=FILE, metavar="[HISTORY…]")
@click.option("--sizes", type=Sizes(), default=DEFAULT_SIZES, help="Sizes of the stores, in bytes.")
@click.option(
    "--tokenizer",
    type=FILE,
    help="Tokenizer of the recorded model. [default: the current model's]",
)
@number_option(
    "--from",
    "first",
    default=600,
    least=0,
    help="Simulate the chats of a file that are numbered N or more, if it has any.",
)
@limit_option
@click.option("--jobs", type=POSITIVE, help="Processes.  [default: cores, at most 4]")
@json_option
@plot_option("the curves")
@click.pass_obj
def crest(
    options: Options,
    simulated: tuple[Path, ...],
    history: tuple[Path, ...],
    more: tuple[Path, ...],
    sizes: tuple[int, ...],
    tokenizer: Path | None,
    first: int,
    limit: int | None,
    jobs: int | None,
    as_json: bool,
    plot: TextIO | None,
) -> None:
    """Compare CREST with REST and others on recorded answers.

    Files have one chat per line, {"id", "messages": [{"role", "content"}]}, plain or .xz. A chat of
    the history whose question is also simulated is left out. Token recycling is underestimated, as
    the model's scores are not known.
    """
    jobs = jobs or min(os.cpu_count() or 1, 4)
    encoder = _encoder(options, tokenizer, jobs)
    chats = simulated_chats(simulated, first)[:limit]
    answers = recordings(chats, encoder.encode, encoder.end)
    if not answers:
        raise InputError(f"{simulated[0]} holds no answers to simulate")
    kind = CHATS.bit_length() - 1
    messages = list(history_texts((*history, *more), chats))
    past = token_texts(messages, encoder.encode, encoder.end, kind)
    found = _compared(past, answers, sizes, jobs)
    if plot:
        plot.write(crest_svg(found))
    click.echo(f"tokenizer {encoder.name}\n\n{crest_table(found)}")
    if as_json:
        click.echo(json.dumps(report(found, sum(len(text.tokens) for text in past), answers)))


def _encoder(options: Options, tokenizer: Path | None, threads: int) -> Encoder:
    if tokenizer:
        return load_encoder(tokenizer, threads)
    locations = locate(options.data_dir)
    return load_encoder(model_path(options, load_config(locations.settings), locations))


def _compared(
    past: list[TokenText], answers: list[Recorded], sizes: tuple[int, ...], jobs: int
) -> list[CrestRow]:
    """All rows, or those finished before Ctrl-C."""
    found: list[CrestRow] = []
    with TemporaryDirectory(prefix="specchat-bench-") as folder, until_interrupted():
        built = _reported(cases(Path(folder), past, sizes))
        for case, counts in run(built, answers, jobs):
            found += rows(case, counts, answers)
            click.echo(f"simulated {case.method}, {case.selection}", err=True)
    return found


def _reported(built: Iterator[Case]) -> Iterator[Case]:
    """Report each store when it is built."""
    for case in built:
        click.echo(f"built {case.method}, {case.selection}: {case.size:,} bytes", err=True)
        yield case


IMPORT_COLUMNS = {
    "documents": "d",
    "tokens": "d",
    "store_bytes": "d",
    "added_s": ".2f",
    "changed_s": ".2f",
    "forgotten_s": ".2f",
    "traces": "d",
}


@click.command("import")
@click.option(
    "--documents",
    multiple=True,
    type=click.IntRange(min=0),
    default=(0, 10_000, 100_000),
    show_default=True,
    metavar="N",
    help="Number of notes already stored; repeatable, to compare.",
)
@json_option
@click.pass_obj
def import_(options: Options, documents: tuple[int, ...], as_json: bool) -> None:
    """Measure the cost of one note: import, change and forget it.

    Reports CPU seconds of the whole command with N other notes stored; storing 100,000 takes
    minutes.
    Your own stores are not used. `traces` counts files that still contain a word of the forgotten
    note. Ctrl-C prints the results so far.
    """
    locations = locate(options.data_dir)
    config = load_config(locations.settings)
    model = model_path(options, config, locations)
    rows: list[dict[str, object]] = []
    with until_interrupted():
        for cost in _costs(model, config.crest.max_bytes, documents):
            rows.append(asdict(cost))
    click.echo(table(rows, IMPORT_COLUMNS))
    if as_json:
        click.echo(json.dumps({"model": model.name, "rows": rows}))


def _costs(model: Path, budget: int, documents: Sequence[int]) -> Iterator[ImportCost]:
    from engines.llama.vocabulary import load_vocabulary

    vocabulary = load_vocabulary(model)
    with TemporaryDirectory(prefix="specchat-bench-") as root:
        for number in documents:
            folder = Path(root) / str(number)
            with progress(number, f"{number:,}") as advance:
                for done in fill(locate(folder), vocabulary, budget, number):
                    advance(done)
            yield measure(folder, model, vocabulary.fingerprint, number)
