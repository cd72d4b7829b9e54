"""What the engine learns about this machine and this person, kept between sessions.

Costs V(n, L) belong to a model on a build and thread count; calibration to a model and its
drafters. Both are caches: a file that is missing or damaged means learning again, never an error.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from engines.calibration import Calibration
from engines.costs import Costs

LOGGER = logging.getLogger("specchat.learned")


class Learned:
    """One file of the cache, for one key (model fingerprint, build, threads)."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def restore(self, costs: Costs, calibration: Calibration) -> None:
        """Go on from what an earlier session learned, if it did."""
        kept: Any = self._read().get(self._key)
        if kept is None:
            return
        try:
            costs.restore(kept["costs"])
            calibration.restore(kept["calibration"])
        except (AttributeError, KeyError, TypeError, ValueError):
            LOGGER.warning("%s is damaged: learning again", self._path)

    def save(self, costs: Costs, calibration: Calibration) -> None:
        """Keep what was learned; other keys in the file stay.

        Two processes may save at once: the file is swapped in whole, and the later one wins.
        """
        everything = self._read()
        everything[self._key] = {"costs": costs.state(), "calibration": calibration.state()}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(
            "w", dir=self._path.parent, prefix=self._path.name, delete=False
        ) as file:
            json.dump(everything, file)
        os.replace(file.name, self._path)

    def _read(self) -> dict[str, object]:
        return _read(self._path)


def costs_of(path: Path, fingerprint: str) -> Costs:
    """What passes of a model cost on this machine, whatever build and threads it last ran with.

    Unmeasured where it never ran here.
    """
    costs = Costs()
    for key in _read(path):
        if key.startswith(f"{fingerprint}/"):
            costs = Costs()
            Learned(path, key).restore(costs, Calibration())
    return costs


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
