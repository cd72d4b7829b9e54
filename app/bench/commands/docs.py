"""`python -m app.bench docs`: options and output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.bench.commands.shared import FILE, json_option, progress, until_interrupted
from app.bench.questions import GradedQuestion, read_questions
from app.cli.output import MAX_LINE_CHARACTERS, table
from app.config import Options, load_config
from app.engine.loading import model_path
from app.locations import Locations, locate
from app.sanitise import one_line

if TYPE_CHECKING:
    from app.bench.docs import Answered, Ranking

DOCUMENTS = "documents"
"""The folder beside a file of questions that they are about."""

RANKING_COLUMNS = {
    "kind": "",
    "questions": "d",
    "at_1": ".2f",
    "at_3": ".2f",
    "at_8": ".2f",
    "both_at_3": ".2f",
    "both_at_8": ".2f",
    "median_ms": ".1f",
}
ANSWER_COLUMNS = {
    "kind": "",
    "questions": "d",
    "cited": "d",
    "both_cited": "d",
    "answered": "d",
    "right": "d",
    "declined": "d",
    "invented": "d",
}


@click.command()
@click.argument("questions", nargs=-1, required=True, type=FILE, metavar="QUESTIONS…")
@click.option(
    "--texts",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help=f"The texts to import.  [default: the folder `{DOCUMENTS}` beside each file]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Answer only N questions, spread over the kinds; 0 for the passages alone.",
)
@click.option("--show", is_flag=True, help="Print the questions that failed.")
@json_option
@click.pass_obj
def docs(
    options: Options,
    questions: tuple[Path, ...],
    texts: Path | None,
    limit: int | None,
    show: bool,
    as_json: bool,
) -> None:
    """Measure how often answers that stand in texts are found, cited and given.

    Imports the texts of each file of QUESTIONS into a temporary folder, and ranks their passages
    for each question. With --model before `docs`, that model answers as in `specchat ask`, with
    temperature 0. Ctrl-C prints the results so far.
    """
    settings = locate(options.data_dir)
    if options.model is not None:
        # By its path, since models are also looked for in the temporary folder.
        path = model_path(options, load_config(settings.settings), settings)
        options = replace(options, model=str(path), temperature=0.0)
    reports = []
    with until_interrupted():
        for file in questions:
            folder = texts or file.with_name(DOCUMENTS)
            reports.append(_measured(options, settings, folder, file, limit, show))
    if as_json:
        name = Path(options.model).name if options.model else None
        click.echo(json.dumps({"model": name, "corpora": reports}))


def _measured(
    options: Options, settings: Locations, texts: Path, file: Path, limit: int | None, show: bool
) -> dict[str, object]:
    """Measure and print one corpus; its part of the report."""
    from app.bench.docs import answer_rows, indexed, ranking_rows, rankings

    asked = read_questions(file)
    click.echo(f"{file}: {len(asked)} questions")
    ranked: list[Ranking] = []
    answered: list[Answered] = []
    with indexed(options, settings, texts, asked) as locations, until_interrupted():
        ranked.extend(rankings(locations, asked))
        rows = ranking_rows(ranked)
        click.echo(f"\n{table(rows, RANKING_COLUMNS)}\n")
        if options.model is not None:
            for one in _answers(options, locations, asked, limit):
                answered.append(one)
    if answered:
        click.echo(f"{table(answer_rows(answered), ANSWER_COLUMNS)}\n")
    if show:
        for line in _failures(ranked, answered):
            click.echo(line)
    return {
        "questions": str(file),
        "rows": rows,
        "ranks": [one.ranks for one in ranked],
        "answers": answer_rows(answered),
    }


def _answers(
    options: Options, locations: Locations, questions: Sequence[GradedQuestion], limit: int | None
) -> Iterator[Answered]:
    from app.bench.docs import answer, spread
    from app.conversation.assistant import Assistant
    from app.runtime.open_model import open_for_one_answer
    from datastores.chats.history import History

    written = spread(questions, len(questions) if limit is None else limit)
    with closing(History.open(locations.history)) as history:
        model = open_for_one_answer(options, locations, history)
        with closing(model), progress(len(questions), "answering") as advance:
            assert isinstance(model.assistant, Assistant)
            for number, question in enumerate(questions):
                yield answer(model.assistant, history, question, write=number in written)
                advance(number + 1)


def _failures(ranked: Sequence[Ranking], answered: Sequence[Answered]) -> Iterator[str]:
    """What was not found among the first three passages, and what was answered wrongly."""
    for place in ranked:
        if place.among(3) < place.question.needed:
            ranks = ", ".join(str(rank or "–") for rank in place.ranks)
            first = [one.title for one in place.passages[:3]]
            yield _line("ranked", place.question, f"{ranks}; first: {', '.join(first)}")
    for one in answered:
        if one.failed:
            cited = ", ".join(passage.title for passage in one.passages) or "nothing"
            said = "" if one.text is None else f"; answered: {one.text}"
            yield _line("answered", one.question, f"cited {cited}{said}")


def _line(what: str, question: GradedQuestion, result: str) -> str:
    wanted = ", ".join(question.documents) or "nothing"
    text = f"{what} [{question.kind}] {question.text} ({wanted}): {result}"
    return one_line(text, MAX_LINE_CHARACTERS)
