"""Choosing a model: by name or path, written into the settings without touching the rest of them.

Owns what a choice means and how it is kept. Loads nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from app.config import load_config
from app.locations import Elsewhere, Locations
from app.models.describing import FoundModel, describe
from app.models.files import A_FILE, Candidate, parts
from app.models.finding import find, survey
from app.models.memory import available, short_of
from app.models.own import EMBEDDED
from app.settings import write_setting
from datastores.errors import InputError

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
    write_setting(locations, "model", "" if model.name == EMBEDDED else model.name)
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
