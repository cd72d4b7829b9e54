"""`specchat models` and its commands `use`, `search` and `pull`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from app import figures
from app.cli.global_options import RenamedOption, json_option
from app.cli.main import LazyGroup
from app.cli.output import MAX_LINE_CHARACTERS, table
from app.config import Options, load_config
from app.engine.draft_model import UNTRAINED, choose_draft_model, draft_model_file, draft_model_name
from app.locations import Locations, locate, model_folders
from app.models import download, hub_search
from app.models.description import FoundModel, describe
from app.models.discovery import (
    BUILT_IN,
    candidate_of,
    current_name,
    find_models,
    model_name,
    resolve_model,
)
from app.models.gguf_files import ModelCandidate, SkippedModel
from app.models.hub import RemoteModel, is_model_name, look_up
from app.models.hub_search import HubOffer, HubRepository
from app.models.memory import available_memory, memory_shortage
from app.models.safetensors import is_model
from app.models.selection import ABOUT_BUILT_IN, choose, with_model
from app.sanitise import one_line
from datastores.errors import InputError, ModelError

T = TypeVar("T")

COLUMNS = {
    "name": "",
    "size": "",
    "parameters": "",
    "quantisation": "",
    "context": "",
    "place": "",
}


@click.group(
    cls=LazyGroup,
    commands_at={
        "pull": "app.cli.models:pull",
        "search": "app.cli.models:search",
        "use": "app.cli.models:use",
    },
    invoke_without_command=True,
)
@json_option
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List, choose and download models.

    Lists models from the Hugging Face cache, LM Studio, Ollama, the extra `smollm2` and specchat's
    own folder, used in place. A star marks the current one.
    """
    if context.invoked_subcommand is not None:
        return
    options: Options = context.ensure_object(Options)
    locations = locate(options.data_dir)
    config = load_config(locations.settings)
    choice = options.model or config.model
    seen = find_models(locations)
    current, lost = _current(choice, locations, seen.candidates)
    in_use = current.files[0] if current is not None else None
    draft_model, without = _draft_model(config.draft_model, in_use, locations)
    all_models = with_model(current, seen.candidates) if current else seen.candidates
    found = [describe(candidate) for candidate in all_models]
    if as_json:
        listed = [{**asdict(model), "path": str(model.path)} for model in found]
        skipped = [{"path": str(entry.path), "reason": entry.reason} for entry in seen.skipped]
        path = str(in_use) if in_use else None
        report = {"model": choice, "path": path, "models": listed, "skipped": skipped}
        click.echo(json.dumps({**report, "draft_model": draft_model}))
        return
    click.echo(listing(found, in_use))
    click.echo(one_line(f"Draft model: {draft_model or 'none'}", MAX_LINE_CHARACTERS))
    for line in [*remarks(found, seen.skipped), *lost, *without]:
        click.echo(one_line(line, MAX_LINE_CHARACTERS), err=True)


def listing(found: Sequence[FoundModel], in_use: Path | None) -> str:
    """The usable models as a table."""
    rows = [_row(model, model.path == in_use) for model in found if not model.problem]
    return table(rows, COLUMNS)


def remarks(found: Sequence[FoundModel], skipped: Sequence[SkippedModel]) -> list[str]:
    """Remarks on models in the table, and why others that were found are missing from it."""
    return [
        *(f"{model.name}: {model.remark}" for model in found if model.remark),
        *(f"not usable: {model.name} ({model.problem})" for model in found if model.problem),
        *(f"not readable: {entry.path} ({entry.reason})" for entry in skipped),
    ]


def _current(
    choice: str, locations: Locations, found: Sequence[ModelCandidate]
) -> tuple[ModelCandidate | None, list[str]]:
    """The chosen model, or None and the reason why it is missing."""
    try:
        path = resolve_model(choice, locations)
    except ModelError as error:
        return None, [f"the chosen model is missing: {error}"]
    if not is_model(path):
        return None, [f"the chosen model is missing: {path}"]
    return candidate_of(path, found), []


def _draft_model(setting: str, model: Path | None, locations: Locations) -> tuple[str, list[str]]:
    """Name of the draft model of `model`, empty for none, and the reason if it is missing."""
    try:
        path = draft_model_file(setting, model, locations) if model is not None else None
    except ModelError as error:
        return "", [f"the draft model is missing: {error}"]
    return (draft_model_name(path, locations) if path is not None else ""), []


def _row(model: FoundModel, in_use: bool) -> dict[str, object]:
    return {
        "name": ("* " if in_use else "  ") + one_line(model.name),
        "size": figures.format_size(model.size),
        "parameters": figures.format_parameters(model.parameters),
        "quantisation": one_line(model.quantisation),
        "context": f"{model.context_length:,}" if model.context_length else "",
        "place": model.place,
    }


@click.command()
@click.argument("name", required=False)
@click.option(
    "--draft-model",
    cls=RenamedOption,
    former=["--student"],
    metavar="NAME",
    help="Draft model, with the same vocabulary; empty for none; `new` makes one.",
)
@click.pass_obj
def use(options: Options, name: str | None, draft_model: str | None) -> None:
    """Switch to another model; chats and imports stay.

    NAME is a name that `specchat models` lists, or the path of a GGUF file or a safetensors folder.
    `built-in` is the model that comes with specchat and has its own draft model. If a model has no
    smaller one of its family, `--draft-model new` makes a draft model from a small part of the
    model, which learns from your chats.
    """
    if name is None and draft_model is None:
        raise click.UsageError("give a NAME or a --draft-model")
    locations = locate(options.data_dir)
    if name is not None:
        _use_model(name, locations)
    if draft_model is not None:
        choose_draft_model(draft_model, locations)
        name = "a new one" if draft_model == UNTRAINED else current_name(draft_model) or "none"
        click.echo(one_line(f"Draft model: {name}", MAX_LINE_CHARACTERS))


def _use_model(name: str, locations: Locations) -> None:
    model = choose(name, locations)
    click.echo(one_line(f"Switched to {model.name}", MAX_LINE_CHARACTERS))
    if model.name == BUILT_IN:
        click.echo(ABOUT_BUILT_IN)
    config = load_config(locations.settings)
    shortage = memory_shortage(model.path, config.context, available_memory(), config.kv_type)
    if shortage:
        click.echo(one_line(f"not enough memory now: {shortage}", MAX_LINE_CHARACTERS), err=True)


@click.command()
@click.argument("words", nargs=-1, metavar="[WORDS]…")
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], as_json: bool) -> None:
    """Search Hugging Face for models that run here.

    WORDS are parts of a model's name; ORG/REPO lists what one repository offers, the best that fits
    this machine's memory first. Without WORDS, suggests well-known models, also offline.
    """
    options: Options = context.ensure_object(Options)
    tokens = load_config(locate(options.data_dir).settings).context
    free, asked = available_memory(), " ".join(words)
    if not asked:
        _print_offers(hub_search.known_offers(tokens, free), free, as_json)
    elif is_model_name(asked) and ":" not in asked:
        offered = _or_suggestions(partial(hub_search.offers, asked, tokens), tokens, free)
        _print_offers(hub_search.ranked(offered, free), free, as_json)
    else:
        _print_found(_or_suggestions(partial(hub_search.search_hub, asked), tokens, free), as_json)


def _or_suggestions(ask: Callable[[], Sequence[T]], tokens: int, free: int) -> Sequence[T]:
    """The hub's answer; if it cannot be reached, print suggestions that need no connection.

    Raises:
        ModelError: the hub cannot be reached.
    """
    try:
        return ask()
    except ModelError:
        known = ", ".join(offer.name for offer in hub_search.known_offers(tokens, free))
        if known:
            click.echo(f"fitting this machine: {known}", err=True)
        raise


def _print_found(found: Sequence[HubRepository], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"repositories": [asdict(one) for one in found]}))
        return
    if not found:
        raise InputError("no match on Hugging Face: use fewer or other words")
    rows = [
        {
            "name": one.name,
            "parameters": figures.format_parameters(one.parameters) if one.parameters else "",
            "downloads": f"{one.downloads:,}",
            "": "accept its terms first" if one.gated else "",
        }
        for one in found
    ]
    click.echo(table(rows, dict.fromkeys(rows[0], "")))
    click.echo("to list the files of one: specchat models search ORG/REPO", err=True)


def _print_offers(offered: Sequence[HubOffer], free: int, as_json: bool) -> None:
    best = hub_search.suggested(offered, free)
    if as_json:
        report = [{**asdict(one), "fits": one.fits(free)} for one in offered]
        click.echo(json.dumps({"free": free, "offers": report}))
        return
    rows = [
        {
            "name": ("* " if one == best else "  ") + one_line(one.name),
            "size": figures.format_size(one.size),
            "memory": figures.format_size(one.needed),
            "speed": f"~{figures.format_speed(one.speed)}",
            "": "" if one.fits(free) else "does not fit",
        }
        for one in offered
    ]
    click.echo(table(rows, {"name": "", "size": "", "memory": "", "speed": "", "": ""}))
    note = f"{figures.format_size(free)} of memory free; speeds are estimates"
    get = f"; to download it: specchat models pull {one_line(best.name)}" if best else ""
    click.echo(note + get, err=True)


@click.command()
@click.argument("wanted", metavar="ORG/REPO[:QUANT]")
@click.pass_obj
def pull(options: Options, wanted: str) -> None:
    """Download a model from Hugging Face, by default its Q4_K_M.

    It is stored in the cache that other programs share (HF_HUB_CACHE, HF_HOME) and verified by its
    checksum. An interrupted download resumes.
    """
    offer = look_up(wanted)
    try:
        path = _with_progress(offer, model_folders().hugging_face)
    except KeyboardInterrupt:
        click.echo("\ninterrupted; run the same command to resume", err=True)
        raise
    name = model_name(path, locate(options.data_dir))
    click.echo(one_line(f"{name} is at {path}", MAX_LINE_CHARACTERS))
    click.echo(
        one_line(f"to switch to it: specchat models use {name}", MAX_LINE_CHARACTERS),
        err=True,
    )


def _with_progress(offer: RemoteModel, cache: Path) -> Path:
    label = one_line(f"{offer.repository}:{offer.tag}")
    with (
        closing(download.download_model(offer, cache)) as events,
        click.progressbar(length=offer.size, label=label, file=sys.stderr) as bar,
    ):
        for event in events:
            if isinstance(event, download.DownloadFinished):
                return event.path
            bar.update(event.done - bar.pos)
    raise AssertionError("a download ends with DownloadFinished")
