"""Choosing a model: by name or path, written into the settings without touching the rest of them.

Owns what a choice means and how it is kept. Loads nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

import tomlkit

from app.config import load_config
from app.locations import Elsewhere, Locations
from app.models.describing import FoundModel, describe
from app.models.files import A_FILE, Candidate, parts
from app.models.finding import find, survey
from app.models.memory import available, short_of
from app.models.own import EMBEDDED
from datastores.errors import InputError, StoreError

ABOUT_EMBEDDED = (
    "The embedded model is a small helper for the command line: it explains and finds commands,"
    " and knows little else."
)
"""What a person should know before the first question."""


def choose(choice: str, locations: Locations, others: Elsewhere | None = None) -> FoundModel:
    """Make a model, by name or path, the one that is opened from now on.

    Raises:
        ModelError: there is no such model, or it cannot be used.
        InputError: the settings file is not understood.
        StoreError: it cannot be written.
    """
    path = Path(choice).expanduser()
    if choice != EMBEDDED and os.path.isfile(path):
        files = parts(path.absolute())
        candidate = Candidate(str(files[0]), A_FILE, files)
    else:
        candidate = find(choice, locations, others)
    model = describe(candidate)
    if model.problem:
        raise InputError(f"{model.name} cannot be used: {model.problem}")
    load_config(locations.settings)  # what is not understood is not written to
    _write(locations, "" if model.name == EMBEDDED else model.name)
    return model


def first_launch_offer(
    locations: Locations, others: Elsewhere | None = None, room: int | None = None
) -> list[FoundModel]:
    """What to offer in place of the embedded model: all that fits into memory, the largest first.

    Empty where a model was chosen before. `room`: bytes of memory; None for what is free now.

    Raises:
        InputError: the settings file is not understood.
    """
    config = load_config(locations.settings)
    if config.model:
        return []
    free = available() if room is None else room
    found = [describe(candidate) for candidate in survey(locations, others).candidates]
    usable = [model for model in found if not model.problem and model.name != EMBEDDED]
    fitting = [model for model in usable if not short_of(model.path, config.context, free)]
    return sorted(fitting, key=lambda model: (-model.parameters, model.name))


def _write(locations: Locations, model: str) -> None:
    """Set `model` in the settings file; comments and all other settings stay as they are."""
    locations.create()
    path = locations.settings.resolve()  # the file itself, where the settings are a link to it
    text = _read(path)
    document = tomlkit.parse(text)
    if "model" in document:
        document["model"] = model
        _replace(path, tomlkit.dumps(document))
    elif model:
        # At the top: where tomlkit would put it, it can come between a comment and what that is on.
        _replace(path, tomlkit.dumps({"model": model}) + text)


def _read(path: Path) -> str:
    """The file's text as it is, its line endings included; empty where there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str) -> None:
    """Put `text` in the file's place at once, with the file's mode."""
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=path.name, delete=False
        ) as file:
            file.write(text)
        if path.exists():
            os.chmod(file.name, path.stat().st_mode & 0o777)
        os.replace(file.name, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; check its permissions") from error
