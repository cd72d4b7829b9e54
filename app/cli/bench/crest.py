"""`specchat bench crest`: the paper's comparison, on recorded answers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from app.bench.crest import Case, CrestRow, cases, report, rows, run
from app.bench.recordings import (
    Encoder,
    documents,
    history_texts,
    load_encoder,
    recordings,
    replayed_chats,
)
from app.bench.report import crest_svg, crest_table
from app.config import Options, load_config
from app.engine.engine import model_path
from app.locations import locate
from datastores.crest.counting import TokenDocument
from datastores.crest.store import MIN_BUDGET_BYTES
from datastores.errors import InputError
from engines.draft_tree import CHATS
from engines.recorded_replay import Recorded

FILES = click.Path(path_type=Path)
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
    "--replay", "replayed", required=True, multiple=True, type=FILES, help="Answers to replay."
)
@click.option("--history", required=True, multiple=True, type=FILES, help="Chats to draft from.")
@click.argument("more", nargs=-1, type=FILES, metavar="[HISTORY…]")
@click.option("--sizes", type=Sizes(), default=DEFAULT_SIZES, help="Sizes of the stores, in bytes.")
@click.option(
    "--tokenizer",
    type=FILES,
    help="Tokenizer of the recorded model. [default: the current model's]",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    default=600,
    show_default=True,
    metavar="N",
    help="Replay the chats of a file that are numbered N or more, if it has any.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N chats.", metavar="N")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes.  [default: cores, at most 4]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.option("--plot", type=FILES, help="Write the curves to this SVG file.")
@click.pass_obj
def crest(
    options: Options,
    replayed: tuple[Path, ...],
    history: tuple[Path, ...],
    more: tuple[Path, ...],
    sizes: tuple[int, ...],
    tokenizer: Path | None,
    first: int,
    limit: int | None,
    jobs: int | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Compare CREST with REST and the other drafters, by replaying recorded answers.

    Files hold one chat a line, {"id", "messages": [{"role", "content"}]}, plain or .xz. A chat of
    the history whose question is also replayed is left out. Token recycling is underestimated, as
    the model's scores are not known.
    """
    jobs = jobs or min(os.cpu_count() or 1, 4)
    encoder = _encoder(options, tokenizer, jobs)
    chats = replayed_chats(replayed, first)[:limit]
    answers = recordings(chats, encoder.encode, encoder.end)
    if not answers:
        raise InputError(f"{replayed[0]} holds no answers to replay")
    kind = CHATS.bit_length() - 1
    texts = list(history_texts((*history, *more), chats))
    past = documents(texts, encoder.encode, encoder.end, kind)
    found = _compared(past, answers, sizes, jobs)
    if plot:
        _write(plot, crest_svg(found))
    click.echo(f"tokenizer {encoder.name}\n\n{crest_table(found)}")
    if as_json:
        click.echo(json.dumps(report(found, sum(len(one.tokens) for one in past), answers)))


def _encoder(options: Options, tokenizer: Path | None, threads: int) -> Encoder:
    if tokenizer:
        return load_encoder(tokenizer, threads)
    locations = locate(options.data_dir)
    return load_encoder(model_path(options, load_config(locations.settings), locations))


def _compared(
    past: list[TokenDocument], answers: list[Recorded], sizes: tuple[int, ...], jobs: int
) -> list[CrestRow]:
    """All rows, or those finished before Ctrl-C."""
    found: list[CrestRow] = []
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        try:
            built = _reported(cases(Path(folder), past, sizes))
            for case, counts in run(built, answers, jobs):
                found += rows(case, counts, answers)
                click.echo(f"replayed {case.method}, {case.selection}", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted: figures of what is finished", err=True)
    return found


def _reported(built: Iterator[Case]) -> Iterator[Case]:
    """Report each store when it is built."""
    for case in built:
        click.echo(f"built {case.method}, {case.selection}: {case.sizes[0][1]:,} bytes", err=True)
        yield case


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
