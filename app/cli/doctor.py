"""`specchat doctor` and `specchat locate`: what works, what is off and why, and where files are.

`doctor` repairs nothing. A check that fails is a finding and does not end the report.
"""

from __future__ import annotations

import json
import platform
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from app.cli.global_options import json_option
from app.config import DRAFTERS, Config, Options, load_config
from app.damage import found_damage
from app.engine.draft_model_versions import new_answers
from app.engine.engine import Engine
from app.engine.loading import load
from app.figures import amount, format_size
from app.indexing.passage_index import open_passages
from app.locations import Locations
from app.locations import locate as find
from app.models.description import header_quantisation, read_header
from app.models.discovery import embedded_embedding_model
from app.models.pass_costs import MEASURED, MIN_WIDTH, ROWS, measured_like
from app.models.safetensors import CPU, torch_device
from app.models.selection import choose_embedder
from app.runtime.learning import awaited_answers
from app.sanitise import one_line
from datastores.chats.records import SCHEMA as HISTORY
from datastores.errors import ModelError, SpecchatError
from datastores.kv_blocks import stored
from datastores.library.library import SCHEMA as LIBRARY
from datastores.passages.embeddings import StoredVectors
from datastores.storage.integrity import DamagedError, require_usable, translate_errors
from datastores.storage.sqlite import require_sound
from engines.distillation.versions import Versions
from engines.drafters.mtp import TargetWithHeads
from engines.llama.build import has_rpc, missing_features
from engines.llama.devices import find_gpus, install_line, rebuild_line, rpc_line, unused_gpu
from engines.target import SavableTarget, Target

OK, OFF, BAD = "ok", "off", "bad"

GET_DRAFT_MODEL = (
    "a smaller model of the same family can draft: `specchat models use --draft-model NAME`"
)
ANY_VERSION = 2**31
"""Accepts caches of all schema versions: only damage is reported."""

MIN_FREE_BYTES = 10_000_000
"""With less free space, chats may not be stored."""

LIBRARIES = ("llama-cpp-python", "textual", "torch", "transformers", "faiss-cpu", "sqlite-utils")
"""Libraries whose versions help to explain failures."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        state: `OK`, `OFF` (works, with something switched off) or `BAD`.
        text: what was found and, unless it is ok, why and what to do about it.
    """

    topic: str
    state: str
    text: str


def findings(options: Options) -> Iterator[Finding]:
    """All findings; those about the model come last, since loading it may take a while."""
    locations = find(options.data_dir)
    yield from _versions()
    yield _data(locations)
    yield from _guarded("history", _databases(locations))
    yield _settings(locations)
    yield _search(locations)
    yield _processor()
    yield _gpu()
    yield _workers()
    yield from _guarded("model", _model(options, locations))


def _guarded(topic: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """`found`, with an error that ends it early as the last finding."""
    try:
        yield from found
    except SpecchatError as error:
        yield Finding(topic, BAD, str(error))


def _versions() -> Iterator[Finding]:
    yield Finding("specchat", OK, version("specchat"))
    system = f"{platform.system()} {platform.machine()}"
    yield Finding("python", OK, f"{platform.python_version()} on {system}")
    yield Finding("sqlite", OK, sqlite3.sqlite_version)
    for name in LIBRARIES:
        try:
            yield Finding(name, OK, version(name))
        except PackageNotFoundError:
            yield Finding(name, BAD, f"not installed; pip install {name}")


def _data(locations: Locations) -> Finding:
    try:
        locations.create()
    except SpecchatError as error:
        return Finding("data", BAD, str(error))
    free = shutil.disk_usage(locations.data).free
    found = f"{locations.data}, {free / 1e9:.1f} GB free"
    if free < MIN_FREE_BYTES:
        return Finding(
            "data", BAD, f"{found}: the disk is full, so nothing is kept; free some space"
        )
    return Finding("data", OK, found)


def _databases(locations: Locations) -> Iterator[Finding]:
    """Databases that were moved aside as damaged, and those that are damaged now."""
    for damage in found_damage(locations):
        yield Finding("damage", BAD if damage.kept else OFF, damage.text)
    aside = "the next start sets it aside and begins a new one"
    for topic, path, schema, none in (
        ("history", locations.history, HISTORY, "no chats"),
        ("library", locations.library, LIBRARY, "no imports"),
    ):
        problem = _problem(path, partial(require_sound, path, schema), aside)
        size = f"{path}, {format_size(path.stat().st_size)}" if path.exists() else none
        yield Finding(topic, BAD if problem else OK, problem or size)
    for folder in (locations.projections, locations.states, locations.replay):
        for path in sorted(folder.rglob("*.db")):
            check = partial(require_usable, path, ANY_VERSION)
            if problem := _problem(path, check, "it will be rebuilt when next needed"):
                yield Finding("cache", BAD, problem)


def _problem(path: Path, check: Callable[..., None], then: str) -> str:
    """What `check` finds wrong with a database; empty if it is sound."""
    try:
        with translate_errors(path):
            check(whole=True)
    except DamagedError:
        return f"{path} is damaged; {then}"
    except SpecchatError as error:
        return str(error)
    return ""


def _settings(locations: Locations) -> Finding:
    try:
        load_config(locations.settings)
    except SpecchatError as error:
        return Finding("settings", BAD, str(error))
    return Finding("settings", OK, str(locations.settings))


def _search(locations: Locations) -> Finding:
    try:
        setting = load_config(locations.settings).embedding
    except SpecchatError:
        return Finding("search", OFF, "by words only: the settings have an error")
    try:
        path = choose_embedder(locations, setting)
        if path is None:
            return Finding("search", OK, "by words only: no embedding model is used")
        embedded, total = 0, 0
        if locations.passages.exists():
            with closing(open_passages(locations)) as passages:
                embedded, total = StoredVectors(passages).counts()
    except SpecchatError as error:
        return Finding("search", BAD, f"by words only: {error}")
    model = "the built-in embedding model" if path == embedded_embedding_model() else path
    done = f"{embedded:,} of {total:,} passages" if total else "no imports yet"
    return Finding("search", OK, f"by words and by meaning, with {model}: {done}")


def _processor() -> Finding:
    missing = missing_features()
    if not missing:
        return Finding("processor", OK, "llama.cpp is built for this processor, as far as is known")
    text = f"llama.cpp was built without {', '.join(missing)}, so steps take longer than they need"
    return Finding("processor", OFF, f"{text}. To build it for this machine: {rebuild_line()}")


def _gpu() -> Finding:
    unused = unused_gpu()
    if unused:
        text = f"{unused} is not being used: llama.cpp was built for the CPU only. To use it:"
        at_once = "" if torch_device() == CPU else "; PyTorch already runs safetensors models on it"
        return Finding("gpu", OFF, f"{text} {install_line(unused)}{at_once}")
    gpus = find_gpus()
    return Finding("gpu", OK, ", ".join(gpus) or "none found; the model runs on the CPU")


def _workers() -> Finding:
    if has_rpc():
        return Finding("workers", OK, "llama.cpp is built with RPC: --rpc puts layers on workers")
    text = (
        "none, as llama.cpp is built without RPC, which spreads a model over machines. To add it:"
    )
    return Finding("workers", OK, f"{text} {rpc_line()}")


def _model(options: Options, locations: Locations) -> Iterator[Finding]:
    try:
        engine = load(options, locations)
    except SpecchatError as error:
        yield Finding("model", BAD, str(error))
        return
    yield Finding("model", OK, f"{engine.name}, context of {engine.target.context_length:,} tokens")
    yield from (Finding("model", OFF, restriction) for restriction in engine.restrictions)
    yield from (Finding("model", BAD, str(error)) for error in engine.errors)
    yield _drafting(options, engine)
    yield from _guarded("draft model", _draft_model(options, engine, locations))
    yield from _heads(options, engine)
    yield _reopening(engine, locations)
    yield _speed(engine)
    yield _verifying(engine)


def _drafting(options: Options, engine: Engine) -> Finding:
    if engine.target.max_rows == 1:
        return Finding("drafting", OFF, "not possible with this model")
    if not options.drafters:
        return Finding("drafting", OFF, "switched off with --drafters none")
    shape = _shape(options, engine.target)
    off = [name for name in DRAFTERS if name not in options.drafters]
    drafting = ", ".join(drafter.name for drafter in engine.drafters)
    text = f"{drafting}; {shape}"
    if off:
        return Finding("drafting", OFF, f"{text}; off: {', '.join(off)}")
    return Finding("drafting", OK, text)


def _shape(options: Options, target: Target) -> str:
    """The shape of drafts with this model, and the reason."""
    tokens = f"of up to {target.max_rows - 1} tokens"
    if options.exact:
        return f"chains {tokens}, for bit-identical answers"
    if target.rollback_rows == target.max_rows:
        return f"trees {tokens}"
    cost = "a rejection that drops more" if target.rollback_rows else "every rejection"
    kept = f" keeps {target.rollback_rows} past states;" if target.rollback_rows else ""
    return f"chains {tokens}: the model is recurrent;{kept} {cost} re-evaluates what was accepted"


def _draft_model(options: Options, engine: Engine, locations: Locations) -> Iterator[Finding]:
    """Which draft model and head are used, and what their learning waits for."""
    config = load_config(locations.settings)
    if "draft-model" in options.drafters:
        name, version = engine.draft_model_name, engine.resources.draft_model_version.number
        if name and engine.versioned_draft_model is not None:
            learned = f"version {version}" if version else "original version"
            waits = _learning(engine, config, locations, engine.versioned_draft_model.versions)
            yield Finding("draft model", OK, f"{name}, {learned}; {waits}")
        elif config.draft_model:
            reason = "; ".join(map(str, engine.errors)) or "it is not loaded"
            yield Finding("draft model", BAD, f"{config.draft_model} does not draft: {reason}")
        else:
            yield Finding("draft model", OK, f"none; {GET_DRAFT_MODEL}")
    if engine.versioned_head is not None:
        versions = engine.versioned_head.versions
        made = f"version {versions.current}" if versions.current else "none yet"
        waits = _learning(engine, config, locations, versions, with_states=True)
        yield Finding("draft head", OK, f"{made}; {waits}")


def _learning(
    engine: Engine,
    config: Config,
    locations: Locations,
    versions: Versions,
    *,
    with_states: bool = False,
) -> str:
    """What the next training of the owner of `versions` waits for."""
    if not config.learn:
        return "learning is off"
    target = engine.target.fingerprint
    new = new_answers(locations, target, versions, with_states=with_states)
    waits = awaited_answers(new) or "learns as soon as this machine is idle"
    return f"{waits} ({new.reason})" if new.halted else waits


def _heads(options: Options, engine: Engine) -> Iterator[Finding]:
    """Whether the model's prediction heads draft; no finding for a model without any."""
    target = engine.target
    if "mtp" not in options.drafters or not isinstance(target, TargetWithHeads):
        return
    if target.heads_problem:
        text = "the model's prediction heads are off, and answers come without their drafts"
        yield Finding("heads", OFF, f"{text}: {target.heads_problem}")
    elif target.heads is not None:
        yield Finding("heads", OK, "the model's prediction heads draft")


def _reopening(engine: Engine, locations: Locations) -> Finding:
    """Whether reopening a chat needs a prefill."""
    max_bytes = load_config(locations.settings).chat_states.max_bytes
    if not max_bytes:
        return Finding("reopening", OFF, "chats are read again: chat_states.max_bytes is 0")
    if not isinstance(engine.target, SavableTarget):
        return Finding("reopening", OFF, "chats are read again: this engine cannot save its state")
    kept = stored(locations.chat_states)
    used = f"{kept.bytes / 1e6:,.0f} of {max_bytes / 1e6:,.0f} MB"
    text = f"{amount(kept.chats, 'saved chat')}, {used}"
    if not engine.target.state_block:
        text += "; this model's cache cannot be rewound, so an edited chat is read again"
    return Finding("reopening", OK, text)


def _speed(engine: Engine) -> Finding:
    costs = engine.costs
    if not costs.state()["plain"]:
        return Finding("speed", OK, "not measured yet; the first answer measures it")
    estimated = "about " if 1 in costs.unmeasured() else ""
    return Finding("speed", OK, f"{estimated}{costs.table(0)[1] * 1e3:.3g} ms per step")


SHORT_DRAFT, LONG_DRAFT = 3, 7
"""Lengths of the drafts whose cost is reported, in tokens."""


def _like(path: Path) -> str:
    """The key in `MEASURED` that applies to a model; empty if none does."""
    if path.is_dir() or (find_gpus() and not unused_gpu()):
        return ""
    try:
        header = read_header(path)
    except ModelError:
        return ""
    wide = header.number("embedding_length") >= MIN_WIDTH
    return measured_like(header_quantisation(header)) if wide else ""


def _verifying(engine: Engine) -> Finding:
    """How many accepted tokens make a draft pay: measured here, or estimated from similar files."""
    short, long = SHORT_DRAFT + 1, LONG_DRAFT + 1
    if not {short, long} & set(engine.costs.unmeasured()):
        ratios, source = (engine.costs.ratio(short), engine.costs.ratio(long)), "measured here"
    else:
        like = _like(engine.path)
        if not like:
            return Finding(
                "verifying", OK, "not measured yet; the next answers with drafts measure it"
            )
        row = dict(zip(ROWS, MEASURED[like], strict=True))
        ratios, source = (row[short], row[long]), f"{like} on another CPU; not measured here yet"
    text = (
        f"a draft of {SHORT_DRAFT} tokens pays if {ratios[0] - 1:.1f} of them are right on average,"
        f" one of {LONG_DRAFT} if {ratios[1] - 1:.1f} are ({source})"
    )
    return Finding("verifying", OK, text)


MARKS = {"ok": "✓", "off": "–", "bad": "✗"}
COLOURS = {"ok": "green", "off": "yellow", "bad": "red"}
MAX_TEXT_CHARACTERS = 2000


@click.command()
@json_option
@click.pass_obj
def doctor(options: Options, as_json: bool) -> None:
    """Check the installation and explain problems."""
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings(options)]}))
        return
    for finding in findings(options):
        mark = click.style(MARKS[finding.state], fg=COLOURS[finding.state])
        click.echo(f"{mark} {finding.topic:<17}{one_line(finding.text, MAX_TEXT_CHARACTERS)}")


@click.command()
@json_option
@click.pass_obj
def locate(options: Options, as_json: bool) -> None:
    """Print the paths specchat uses."""
    paths = {name: str(path) for name, path in find(options.data_dir).named().items()}
    if as_json:
        click.echo(json.dumps(paths))
        return
    width = max(map(len, paths)) + 1
    for name, path in paths.items():
        click.echo(f"{name:<{width}}{one_line(path, limit=len(path) + 1)}")
