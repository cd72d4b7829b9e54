"""Writes one setting into the person's settings file, and touches nothing else in it."""

from __future__ import annotations

from pathlib import Path

import tomlkit

from app.config import load_config
from app.locations import Locations
from datastores.errors import StoreError
from datastores.files import swap_in


def write_setting(locations: Locations, name: str, value: str) -> None:
    """Set `name` at the top of the settings file; comments and other settings stay as they are.

    An empty value is not written where the setting is not there.

    Raises:
        InputError: the settings file is not understood; what is not understood is not written to.
        StoreError: it cannot be written.
    """
    load_config(locations.settings)
    locations.create()
    path = locations.settings.resolve()  # the file itself, where the settings are a link to it
    text = _read(path)
    document = tomlkit.parse(text)
    if name in document:
        document[name] = value
        _replace(path, tomlkit.dumps(document))
    elif value:
        # At the top: where tomlkit would put it, it can come between a comment and what that is on.
        _replace(path, tomlkit.dumps({name: value}) + text)


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
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        swap_in(path, [text], newline="", mode=mode)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; check its permissions") from error
