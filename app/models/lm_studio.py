"""LM Studio's models: `PUBLISHER/REPO/FILE.gguf`, named like the repositories they came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.models.files import Candidate, Skipped, in_folder

PLACE = "LM Studio"


def candidates(folder: Path) -> Iterator[Candidate | Skipped]:
    """The models in `folder`."""
    return in_folder(folder, PLACE)
