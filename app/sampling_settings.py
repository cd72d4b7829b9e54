"""The settings of one chat: system prompt, sampling, use of imports; checked before they are used.

Owns which values are valid, from files and forms alike. What they do is `engines.sampler`'s
business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from app.sanitise import one_line
from datastores.errors import InputError
from engines.sampler import Sampling

NEW_SEED = -1
"""The seed that means a new one for each answer."""

DOCS = "docs"
"""The name of the setting that is one of `DOCS_MODES`."""
DOCS_ONCE, DOCS_ITERATIVE, DOCS_KNN, DOCS_OFF = "once", "iterative", "knn", "off"
DOCS_MODES = (DOCS_ONCE, DOCS_ITERATIVE, DOCS_KNN, DOCS_OFF)
"""How imported texts are used: searched once for each question, or every few words, or for the
wording of each word, or not at all."""

SETTING_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 2**31 - 1),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.01, 100),
    "repeat_window": (1, 2**31 - 1),
    "seed": (NEW_SEED, 2**64 - 1),
}
"""Minimum and maximum of each setting; all of them are numbers."""


def with_overrides(base: Sampling, chosen: Mapping[str, Any], where: str = "sampling") -> Sampling:
    """`base` with the settings of `chosen` instead of its own.

    Args:
        where: where they are from, for the error.

    Raises:
        InputError: an unknown setting, or a value of the wrong type or out of range.
    """
    kinds = {entry.name: type(getattr(base, entry.name)) for entry in fields(base)}
    changed = {}
    for name, value in chosen.items():
        if name not in kinds:
            known = ", ".join(sorted(kinds))
            raise InputError(f"{where}: unknown setting {name!r}; choose from {known}")
        whole = type(value) is int
        if not whole and (kinds[name] is int or type(value) is not float):
            raise InputError(f"{where}: {name} must be a number, not {value!r}")
        changed[name] = kinds[name](value)
    return require_valid(replace(base, **changed), where)


def require_valid(sampling: Sampling, where: str) -> Sampling:
    """`sampling` itself, if it is valid.

    Raises:
        InputError: a value is out of range.
    """
    for name, value in asdict(sampling).items():
        minimum, maximum = SETTING_RANGES[name]
        if not minimum <= value <= maximum or math.isnan(value):
            raise InputError(f"{where}: {name} must be from {minimum} to {maximum}, not {value}")
    return sampling


def require_docs_mode(mode: str, where: str) -> str:
    """`mode` itself, if it is one of `DOCS_MODES`.

    Raises:
        InputError: it is not.
    """
    if mode not in DOCS_MODES:
        choices = f"{', '.join(DOCS_MODES[:-1])} or {DOCS_MODES[-1]}"
        raise InputError(f"{where} must be {choices}, not {one_line(mode, 12)!r}")
    return mode


def parse_setting(name: str, typed: str) -> int | float | str:
    """The value typed for the setting `name`: a number, or for `DOCS` a mode.

    Raises:
        InputError: it is not a number of the right type, or out of range, or no mode.
    """
    if name == DOCS:
        return require_docs_mode(typed, "docs")
    kind = type(getattr(Sampling(), name))
    try:
        value: int | float = kind(typed)
    except ValueError as error:
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(f"must be {wanted}, not {one_line(typed, 12)}") from error
    minimum, maximum = SETTING_RANGES[name]
    if not minimum <= value <= maximum:
        raise InputError(f"must be from {minimum} to {maximum}")
    return value


@dataclass(frozen=True, slots=True)
class ChatTuning:
    """The settings of a chat.

    Attributes:
        system: the system prompt.
        sampling: the settings that differ from the defaults, by name.
        docs: one of `DOCS_MODES`; empty for the default.
    """

    system: str = ""
    sampling: Mapping[str, object] = field(default_factory=dict)
    docs: str = ""

    def summary(self) -> str:
        """The settings in a few words; empty if there are none."""
        sampling = [f"{name.replace('_', ' ')} {value}" for name, value in self.sampling.items()]
        docs = [f"{DOCS} {self.docs}"] * bool(self.docs)
        return ", ".join([*sampling, *["system prompt"] * bool(self.system), *docs])
