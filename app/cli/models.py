"""`specchat models`: what models there are, and the group of commands on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from app.bench.table import table
from app.cli.lazy import LazyGroup
from app.config import load_config
from app.locations import Locations, locate
from app.models import wording
from app.models.catalogue import with_file
from app.models.describing import FoundModel, describe
from app.models.files import Skipped
from app.models.finding import path_of, survey
from app.options import Options
from app.sanitise import one_line
from datastores.errors import ModelError

COLUMNS = {
    "name": "",
    "size": "",
    "parameters": "",
    "quantisation": "",
    "context": "",
    "place": "",
}
LINE = 2000
"""Characters of a line: names and paths fit, hostile ones do not fill the screen."""


@click.group(
    cls=LazyGroup,
    commands_at={
        "pull": "app.cli.pull:pull",
        "use": "app.cli.use:use",
    },
    invoke_without_command=True,
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List the models on this machine, choose one, or fetch one.

    Found are those of the Hugging Face cache, of LM Studio, of Ollama and of specchat itself. They
    are used where they lie. A star marks the one in use.
    """
    if context.invoked_subcommand is not None:
        return
    options: Options = context.ensure_object(Options)
    locations = locate(options.data_dir)
    choice = options.model or load_config(locations.settings).model
    seen = survey(locations)
    in_use, lost = _in_use(choice, locations)
    found = [describe(candidate) for candidate in with_file(in_use, seen.candidates)]
    if as_json:
        listed = [{**asdict(model), "path": str(model.path)} for model in found]
        skipped = [{"path": str(entry.path), "reason": entry.reason} for entry in seen.skipped]
        path = str(in_use) if in_use else None
        report = {"model": choice, "path": path, "models": listed, "skipped": skipped}
        click.echo(json.dumps(report))
        return
    click.echo(listing(found, in_use))
    for line in [*remarks(found, seen.skipped), *lost]:
        click.echo(one_line(line, LINE), err=True)


def listing(found: Sequence[FoundModel], in_use: Path | None) -> str:
    """The usable models as a table."""
    rows = [_row(model, model.path == in_use) for model in found if not model.problem]
    return table(rows, COLUMNS)


def remarks(found: Sequence[FoundModel], skipped: Sequence[Skipped]) -> list[str]:
    """Why something that is there is not in the table."""
    return [
        *(f"not usable: {model.name} ({model.problem})" for model in found if model.problem),
        *(f"not looked into: {entry.path} ({entry.reason})" for entry in skipped),
    ]


def _in_use(choice: str, locations: Locations) -> tuple[Path | None, list[str]]:
    """The file that is opened now; None and the reason where it is gone."""
    try:
        path = path_of(choice, locations)
    except ModelError as error:
        return None, [f"the chosen model is not here: {error}"]
    return (path, []) if path.is_file() else (None, [f"the chosen model is not here: {path}"])


def _row(model: FoundModel, in_use: bool) -> dict[str, object]:
    return {
        "name": ("* " if in_use else "  ") + one_line(model.name),
        "size": wording.size(model.size),
        "parameters": wording.weights(model.parameters),
        "quantisation": one_line(model.quantisation),
        "context": f"{model.context_length:,}" if model.context_length else "",
        "place": model.place,
    }
