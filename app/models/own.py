"""specchat's own models: the embedded one, and files the person put into its folder."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from app.models.files import Candidate, Skipped, in_folder

PLACE = "specchat"
EMBEDDED = "embedded"
"""The embedded model's name wherever a name is expected."""

EMBEDDED_TEMPERATURE = 0.0
"""Unless the person chose another: a specialist's likeliest answer is its best."""

_FILE = "target-f16.gguf"


def embedded() -> Path:
    """The model that is shipped with specchat."""
    return Path(str(files("assets") / _FILE))


def candidates(folder: Path) -> Iterator[Candidate | Skipped]:
    """The embedded model, then those in `folder`."""
    yield Candidate(EMBEDDED, PLACE, (embedded(),))
    yield from in_folder(folder, PLACE)
