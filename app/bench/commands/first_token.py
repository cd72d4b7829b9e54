"""`python -m app.bench first-token`: options and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from app.bench.commands.shared import (
    json_option,
    number_option,
    progress,
    until_interrupted,
    workload_option,
)
from app.bench.workloads import read_workload
from app.cli.output import table
from app.config import Options
from app.engine.draft_model import draft_model_file
from app.engine.loading import load, with_drafters
from app.locations import locate
from app.machine import machine
from datastores.errors import InputError, ModelError

if TYPE_CHECKING:
    from app.bench.first_token import FirstToken

COLUMNS = {
    "questions": "d",
    "resting_ms": ".1f",
    "training_ms": ".1f",
    "ratio": ".3f",
    "longest_pause_ms": ".1f",
}


@click.command("first-token")
@workload_option
@number_option("--limit", default=40, help="Only the first N chats.")
@json_option
@click.pass_obj
def first_token(options: Options, workload: Path, limit: int, as_json: bool) -> None:
    """Measure the time to first token while the draft model trains.

    The first question of each chat is asked with and without training in the background, in turn;
    the time that training takes to pause counts. The ratio is the median over pairs. Run it on an
    idle machine. Ctrl-C prints the results so far.
    """
    from app.bench.distill import answers
    from app.bench.first_token import Training, fill, first_tokens, own_copy

    chats = [replace(chat, questions=chat.questions[:1]) for chat in read_workload(workload)]
    engine = with_drafters(load(replace(options, drafters=()), rows=32), (), 0)
    draft_model = draft_model_file("", engine.path, locate(options.data_dir))
    if draft_model is None:
        raise InputError(f"{engine.name} has no draft model that learns")
    pairs: list[FirstToken] = []
    with TemporaryDirectory(prefix="specchat-bench-") as folder:
        locations = locate(Path(folder) / "data")
        sampling = engine.defaults.sampling
        fill(locations, engine, list(answers(engine, {"": chats[:limit]}, sampling)))
        copy = own_copy(draft_model, Path(folder))
        questions = [chat.questions[0] for chat in chats[:limit]]
        with (
            closing(Training(engine, copy, locations)) as training,
            until_interrupted(),
            progress(len(questions), "questions") as advance,
        ):
            try:
                for pair in first_tokens(engine, questions, sampling, training):
                    pairs.append(pair)
                    advance(len(pairs))
            except ModelError as error:
                if not pairs:
                    raise
                click.echo(f"{error}; results so far:", err=True)
    click.echo(_report(engine.name, pairs, as_json))


def _report(model: str, pairs: Sequence[FirstToken], as_json: bool) -> str:
    if not pairs:
        return "no question was asked both ways"
    row = {
        "questions": len(pairs),
        "resting_ms": 1e3 * median(pair.resting for pair in pairs),
        "training_ms": 1e3 * median(pair.training for pair in pairs),
        "ratio": median(pair.training / pair.resting for pair in pairs),
        "longest_pause_ms": 1e3 * max(pair.pause for pair in pairs),
    }
    if as_json:
        return json.dumps({"model": model, "machine": machine(), **row})
    return table([row], COLUMNS)
