"""Costs, acceptance and drafter backoffs of a model on this machine, kept between sessions.

They belong to a model with a build and thread count. All are caches: if the file is missing or
damaged, they are learned again, and damage is reported, never raised.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datastores.errors import SpecchatError, StoreError
from datastores.storage.files import write_atomic
from engines.budget.acceptance_model import AcceptanceModel
from engines.budget.cost_model import CostModel
from engines.budget.loss_limit import DrafterBackoffs

_UNUSABLE = (AttributeError, KeyError, TypeError, ValueError, RecursionError, OSError)
"""Raised for a file that cannot be read, and for values of the wrong shape when restoring them."""


class LearnedState:
    """One file of the cache, for one key (model fingerprint, build, threads).

    Attributes:
        error: why the stored state could not be used; None if it could.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.error: SpecchatError | None = None
        self._path = path
        self._key = key

    def restore(
        self, costs: CostModel, calibration: AcceptanceModel, backoffs: DrafterBackoffs
    ) -> None:
        """Restore what an earlier session learned, all of it or nothing."""
        try:
            stored = _read(self._path).get(self._key)
            if stored is not None:
                # Into fresh objects first, as partly damaged state must change nothing.
                for cost_model, acceptance, drafters in (
                    (CostModel(), AcceptanceModel(), DrafterBackoffs()),
                    (costs, calibration, backoffs),
                ):
                    cost_model.restore(stored["costs"])
                    acceptance.restore(stored.get("acceptance", {}))
                    drafters.restore(stored.get("drafters", {}))
        except _UNUSABLE:
            self.error = StoreError(
                f"{self._path} is damaged: speeds and acceptance rates are measured again"
            )

    def save(
        self, costs: CostModel, calibration: AcceptanceModel, backoffs: DrafterBackoffs
    ) -> None:
        """Save what was learned; other keys in the file stay.

        Two processes may save at once: the file is replaced atomically, and the later one wins.

        Raises:
            StoreError: it cannot be written; what was stored before stays.
        """
        try:
            everything = _read(self._path)
        except _UNUSABLE:
            everything = {}
        everything[self._key] = {
            "costs": costs.state(),
            "acceptance": calibration.state(),
            "drafters": backoffs.state(),
        }
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._path, [json.dumps(everything)])
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be written ({error.strerror}): measured speeds and acceptance"
                " rates are lost when specchat ends"
            ) from error


def costs_of(path: Path, fingerprint: str) -> CostModel:
    """The costs of a model on this machine, with the build and threads of its last run; unmeasured
    if it never ran here."""
    costs = CostModel()
    try:
        keys = list(_read(path))
    except _UNUSABLE:
        return costs
    for key in keys:
        if key.startswith(f"{fingerprint}/"):
            costs = CostModel()
            LearnedState(path, key).restore(costs, AcceptanceModel(), DrafterBackoffs())
    return costs


def _read(path: Path) -> dict[str, Any]:
    """The stored state by key; empty if there is no file.

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
    raise ValueError(f"{constant} is not a measurement")
