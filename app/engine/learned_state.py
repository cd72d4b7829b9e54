"""What the engine learns about this machine and this person, kept between sessions.

Costs V(n, L) belong to a model on a build and thread count; calibration to a model and its
drafters. Both are caches: a file that is missing or damaged means learning again, and a word about
the damage, never a failure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datastores.errors import SpecchatError, StoreError
from datastores.storage.files import write_atomic
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel

_UNUSABLE = (AttributeError, KeyError, TypeError, ValueError, RecursionError, OSError)
"""What is raised by a file that cannot be read, and by values of another shape where they are taken
over."""


class LearnedState:
    """One file of the cache, for one key (model fingerprint, build, threads).

    Attributes:
        error: why what was kept could not be used; None while all is well.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.error: SpecchatError | None = None
        self._path = path
        self._key = key

    def restore(self, costs: CostModel, calibration: AcceptanceModel) -> None:
        """Go on from what an earlier session learned, if it did; all of it or nothing."""
        try:
            kept = _read(self._path).get(self._key)
            if kept is not None:
                # On trial first: what is damaged half-way must leave no trace.
                for one, other in ((CostModel(), AcceptanceModel()), (costs, calibration)):
                    one.restore(kept["costs"])
                    other.restore(kept["calibration"])
        except _UNUSABLE:
            self.error = StoreError(
                f"{self._path} is damaged: speeds and what drafts are worth are learnt anew"
            )

    def save(self, costs: CostModel, calibration: AcceptanceModel) -> None:
        """Keep what was learned; other keys in the file stay.

        Two processes may save at once: the file is swapped in whole, and the later one wins.

        Raises:
            StoreError: it cannot be written; what was kept before stays.
        """
        try:
            everything = _read(self._path)
        except _UNUSABLE:
            everything = {}
        everything[self._key] = {"costs": costs.state(), "calibration": calibration.state()}
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._path, [json.dumps(everything)])
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be written ({error.strerror}): what was learnt about speeds"
                " will be learnt again"
            ) from error


def costs_of(path: Path, fingerprint: str) -> CostModel:
    """What passes of a model cost on this machine, whatever build and threads it last ran with.

    Unmeasured where it never ran here.
    """
    costs = CostModel()
    try:
        keys = list(_read(path))
    except _UNUSABLE:
        return costs
    for key in keys:
        if key.startswith(f"{fingerprint}/"):
            costs = CostModel()
            LearnedState(path, key).restore(costs, AcceptanceModel())
    return costs


def _read(path: Path) -> dict[str, Any]:
    """By key, what was kept; nothing where nothing was.

    Raises:
        ValueError: it is damaged.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    content = json.loads(text, parse_constant=_refuse)
    if not isinstance(content, dict):
        raise ValueError("not an object")
    return content


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no measurement")
