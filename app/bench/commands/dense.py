"""`python -m app.bench dense`: options and output of the benchmark of the dense index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from app.bench.commands.shared import (
    FILE,
    json_option,
    limit_option,
    progress,
    until_interrupted,
    workload_option,
)
from app.bench.decode import answer_chat
from app.bench.dense import StateText, compare_drafters, measure_forms, read_states
from app.bench.environment import GREEDY, WAYS, bench_stores, make_texts
from app.bench.workloads import RecordedChat, Workload, read_chats
from app.cli.output import Row, table
from app.config import Options
from app.engine.engine import Engine
from app.engine.loading import load
from app.machine import machine
from datastores.errors import InputError
from engines.sampler import Sampling

FORM_COLUMNS = {
    "history": "",
    "fitted_to": "d",
    "dimensions": "d",
    "z_norm": "",
    "unit_norm": "",
    "variance": ".0%",
    "recall": ".3f",
    "mrr": ".3f",
    "tokens_per_step": ".3f",
    "mean_acceptance_rate": ".1%",
}
DRAFTER_COLUMNS = {
    "history": "",
    "drafters": "",
    "rows": "d",
    "tokens_per_step": ".3f",
    "mean_acceptance_rate": ".1%",
}
BUDGETS = (8, 16)
"""Draft tokens at each step."""
STORES = ("crest", "rest")


@click.command()
@workload_option
@click.option(
    "--history",
    multiple=True,
    required=True,
    type=FILE,
    metavar="FILE",
    help="Chats to draft from, one JSON object per line; repeatable, to compare.",
)
@click.option(
    "--answers",
    "way",
    type=click.Choice(WAYS),
    default=GREEDY,
    help="Answers of the history: the file's, or the model's own. [default: greedy]",
)
@limit_option
@json_option
@click.pass_obj
def dense(
    options: Options,
    workload: Path,
    history: tuple[Path, ...],
    way: str,
    limit: int | None,
    as_json: bool,
) -> None:
    """Compare keys of hidden states, and dense drafts with REST and CREST.

    The model answers the workload greedily, and drafts are simulated along its answers. Keys are
    fitted to more or fewer states of each history, with other dimensions and without a norm. Chats
    of a history whose question is in the workload are left out.
    """
    engine = load(replace(options, drafters=(), draft_tokens=0))
    asked = list(read_chats(workload))[:limit]
    forms: list[Row] = []
    drafters: list[Row] = []
    with until_interrupted():
        answers = list(_answers(engine, asked))
        for file in history:
            texts = list(_texts(engine, file, way, {chat.question for chat in asked}))
            if not texts or not answers:
                raise InputError(f"nothing to compare: {file} or {workload} has no answers")
            found = _measured(engine, texts, answers)
            forms += [{"history": file.name, **row} for row in found[0]]
            drafters += [{"history": file.name, **row} for row in found[1]]
    if as_json:
        report = {"model": engine.name, "machine": machine(), "forms": forms, "drafters": drafters}
        click.echo(json.dumps(report))
    else:
        tables = (table(forms, FORM_COLUMNS), table(drafters, DRAFTER_COLUMNS))
        click.echo("\n\n".join((engine.name, *tables)))


def _answers(engine: Engine, chats: Sequence[RecordedChat]) -> Iterator[StateText]:
    """The model's greedy answer to the last question of each chat, with its states."""
    with progress(len(chats), "answers") as advance:
        for done, chat in enumerate(chats, 1):
            if questions := chat.contents("user"):
                asked = Workload(chat.id, questions)
                last = answer_chat(engine, asked, (), Sampling(temperature=0.0))[-1]
                if len(last.tokens) > 1:
                    tokens = [*last.prompt, *last.tokens]
                    yield _read(engine, tokens, len(last.prompt))
            advance(done)


def _texts(engine: Engine, file: Path, way: str, left_out: set[str]) -> Iterator[StateText]:
    """Every chat of a history as one text, all of which is drafted from."""
    chats = [chat for chat in read_chats(file) if chat.question not in left_out]
    make = make_texts(engine, way)
    with progress(len(chats), file.name) as advance:
        for done, chat in enumerate(chats, 1):
            for tokens in make(chat):
                yield _read(engine, tokens, 1)
            advance(done)


def _read(engine: Engine, tokens: Sequence[int], prompt: int) -> StateText:
    with engine.busy:
        return read_states(engine.target, tokens, prompt)


def _measured(
    engine: Engine, texts: Sequence[StateText], answers: Sequence[StateText]
) -> tuple[list[Row], list[Row]]:
    """The rows of both tables."""
    size = engine.vocabulary.size
    with bench_stores(engine, STORES) as stores:
        for _ in stores.fill(engine.target, [text.tokens for text in texts]):
            pass
        drafters: list[Row] = [*compare_drafters(texts, stores, answers, size, BUDGETS)]
    return [*measure_forms(texts, answers, size, BUDGETS[0])], drafters
