"""`specchat draft list`, `rollback` and `reset`: versions of the draft model and the draft head."""

from __future__ import annotations

import json
from dataclasses import asdict
from time import localtime, strftime

import click

from app.cli.global_options import json_option
from app.cli.main import LazyGroup
from app.cli.output import MAX_LINE_CHARACTERS, table
from app.config import Options, load_config
from app.engine.draft_model import draft_model_file, draft_model_name
from app.engine.draft_model_versions import (
    LearningHistory,
    NewAnswers,
    head_versions,
    learning_history,
    new_answers,
    versions_of,
)
from app.figures import amount
from app.locations import Locations, locate
from app.models.discovery import resolve_model
from app.runtime.learning import awaited_answers
from app.sanitise import one_line
from datastores.errors import InputError
from engines.distillation.versions import Version, Versions
from engines.fingerprint import fingerprint

COLUMNS = {"version": "", "learned": "", "answers": "", "right": "", "tokens per step": ""}
NO_HEAD = "no draft head"
head_option = click.option(
    "--head",
    is_flag=True,
    help="Act on the draft head instead, a small network on the model's state.",
)


@click.group(
    cls=LazyGroup,
    commands_at={
        "list": "app.cli.draft:list_",
        "reset": "app.cli.draft:reset",
        "rollback": "app.cli.draft:rollback",
    },
)
def draft() -> None:
    """Show or undo what the draft model learned.

    The draft model guesses words for the current model and learns from its answers while this
    machine is idle. So does the draft head, which specchat makes for every GGUF model. A new
    version is used only if it guesses better on questions it has not seen.
    """


@click.command("list")
@json_option
@head_option
@click.pass_obj
def list_(options: Options, as_json: bool, head: bool) -> None:
    """List the versions of the draft model and what each one gained.

    A star marks the current one. The share of guesses that were right, at the sampling settings of
    that time, and the tokens per step are measured on held-out questions, before and after
    learning.
    """
    locations = locate(options.data_dir)
    target, versions, without = _learned(options, locations, head)
    history = learning_history(locations, target, versions)
    new = new_answers(locations, target, versions, with_states=head)
    if as_json:
        found = [asdict(version) for version in history.versions]
        attempt = asdict(history.attempt) if history.attempt else None
        report = {"current": history.current, "answers": history.answers, "attempt": attempt}
        click.echo(json.dumps({**report, "versions": found}))
        return
    for line in _lines(history, without, new):
        click.echo(line)


@click.command()
@head_option
@click.pass_obj
def rollback(options: Options, head: bool) -> None:
    """Return to the previous version of the draft model."""
    _, versions, without = _learned(options, locate(options.data_dir), head)
    number = versions.rollback()
    click.echo(f"Switched to version {number}" if number else f"{_start(without)} is in use")


@click.command()
@head_option
@click.pass_obj
def reset(options: Options, head: bool) -> None:
    """Delete everything the draft model learned."""
    _, versions, without = _learned(options, locate(options.data_dir), head)
    versions.reset()
    click.echo(f"Deleted all versions; {without} is in use")


def _learned(options: Options, locations: Locations, head: bool) -> tuple[str, Versions, str]:
    """Fingerprint of the chosen model, its versions, and what drafts when no version is in use.

    Raises:
        InputError: the chosen model has no draft model.
    """
    config = load_config(locations.settings)
    model = resolve_model(options.model or config.model, locations)
    target = fingerprint(model)
    if head:
        return target, head_versions(locations, target), NO_HEAD
    path = draft_model_file(config.draft_model, model, locations)
    if path is None:
        raise InputError(
            f"{model.name} has no draft model: choose one with"
            " `specchat models use --draft-model NAME`"
        )
    original = f"the original draft model {one_line(draft_model_name(path, locations))}"
    return target, versions_of(locations, target, path), original


def _lines(history: LearningHistory, without: str, new: NewAnswers) -> list[str]:
    rows = [_row(version, version.number == history.current) for version in history.versions]
    lines = [table(rows, COLUMNS)] if rows else []
    if not history.current:
        lines.append(f"{_start(without)} is in use")
    lines.append(
        awaited_answers(new) or f"{amount(new.count, 'new answer')} to learn from when idle"
    )
    if history.attempt is not None and history.attempt.reason:
        reason = one_line(history.attempt.reason, MAX_LINE_CHARACTERS)
        lines.append(f"last attempt: {reason}")
    return lines


def _row(version: Version, in_use: bool) -> dict[str, object]:
    figures = version.figures
    return {
        "version": f"{'*' if in_use else ' '} {version.number}",
        "learned": strftime("%d %b %Y", localtime(version.created)),
        "answers": f"{figures.get('new', 0):,.0f}",
        "right": _change(version, "acceptance"),
        "tokens per step": _change(version, "tokens_per_step"),
    }


def _change(version: Version, name: str) -> str:
    """`0.81 → 0.84`: a figure before and after learning."""
    before, after = version.figures.get(f"{name}_before"), version.figures.get(name)
    return f"{before:.2f} → {after:.2f}" if before is not None and after is not None else ""


def _start(text: str) -> str:
    return text[0].upper() + text[1:]
