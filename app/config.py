"""The few settings a person may want to keep, read from config.toml.

Owns their names, meanings and defaults, and refuses a file it does not fully understand: a setting
that is misspelt must not be ignored in silence. What can be measured or derived is no setting.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.sampling import NEW_SEED, checked
from datastores.errors import InputError
from engines.sampler import Sampling

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class CrestConfig:
    """The n-gram store of texts and past chats."""

    max_bytes: int = 256 * 2**20
    """The most disk it takes, for each tokenizer; the rarest n-grams go first."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings. In the file, `keys`, `crest` and `sampling` are tables; the others stand at the
    top."""

    model: str = ""
    """Model to open, by a name `specchat models` lists or a file; empty for the embedded one."""

    context: int = 8192
    """The most tokens the model looks back on; less where the model itself allows less."""

    max_tokens: int = 2048
    """The longest answer, in tokens."""

    threads: int = 0
    """Threads for the model; 0 takes one for each physical core."""

    theme: str = "specchat-dark"
    """Colours of the interface: specchat-dark, specchat-light, or the name of a Textual theme."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys for commands, by the names in the table of keys, such as quit = "ctrl+x". Several
    are separated by commas; an empty text is for none."""

    crest: CrestConfig = field(default_factory=CrestConfig)
    """How much is kept of texts and past chats to draft from."""

    sampling: Sampling = field(default_factory=lambda: Sampling(seed=NEW_SEED))
    """How the next token is drawn. Zero for temperature is greedy; a seed of -1 is a new one for
    each answer."""


def load_config(path: Path) -> Config:
    """The settings in `path`; the defaults where there is no such file.

    Raises:
        InputError: not TOML, an unknown setting, or a value of the wrong kind or out of range.
    """
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}; correct or remove it") from error
    config = _filled(Config(), table, path, "")
    checked(config.sampling, f"{path}: sampling")
    return config


def _filled(defaults: Settings, table: Mapping[str, Any], path: Path, prefix: str) -> Settings:
    """`defaults` with the values of `table`, section by section."""
    known = {entry.name: getattr(defaults, entry.name) for entry in fields(defaults)}
    changed = {}
    for name, value in table.items():
        if name not in known:
            raise InputError(
                f"{path}: unknown setting {prefix + name!r}; there are {', '.join(sorted(known))}"
            )
        changed[name] = _value(known[name], value, path, prefix + name)
    return replace(defaults, **changed)


def _value(default: object, value: Any, path: Path, name: str) -> object:
    """`value`, if it is of the kind of `default`; a whole number also stands for a float."""
    if is_dataclass(default) and not isinstance(default, type) and isinstance(value, dict):
        return _filled(default, value, path, f"{name}.")
    if isinstance(default, Mapping) and isinstance(value, dict):
        return dict(_texts(value, path, f"{name}."))
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        tables = is_dataclass(default) or isinstance(default, Mapping)
        kind = "a table" if tables else f"of type {type(default).__name__}"
        raise InputError(f"{path}: {name} must be {kind}, not {value!r}")
    return value


def _texts(table: Mapping[str, Any], path: Path, prefix: str) -> Iterator[tuple[str, str]]:
    """Name → text; TOML takes a dot in a name for a table within the table."""
    for name, value in table.items():
        if isinstance(value, dict):
            for below, text in _texts(value, path, f"{prefix}{name}."):
                yield f"{name}.{below}", text
        elif isinstance(value, str):
            yield name, value
        else:
            raise InputError(f"{path}: {prefix}{name} must be a text, not {value!r}")
