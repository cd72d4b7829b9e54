"""Counts the program's own frames between a question and the model."""

from __future__ import annotations

import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(f"{ROOT / package}/" for package in ("app", "engines", "datastores"))

MAX_FRAMES = 12
"""Maximum frames from the key that sends a question to `llama_decode`, over both threads."""
MAX_INTERFACE_FRAMES = 4
"""Maximum of these on the interface's thread."""


def own_frames() -> list[str]:
    """The calling frames of the program itself, outermost first."""
    return [
        f"{Path(frame.filename).relative_to(ROOT)}: {frame.name}"
        for frame in traceback.extract_stack()
        if frame.filename.startswith(PACKAGES)
    ]
