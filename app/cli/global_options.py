"""The global options, how they become `Options`, and options that several commands share.

Global options may precede or follow the name of a command; the latter wins. A command that has an
option of the same name keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from app.config import DRAFTERS, Options
from app.locations import DATA_DIR_VARIABLE
from engines.draft_tree import FORMER_NAMES

Command = TypeVar("Command", bound=Callable[..., Any])


class RenamedOption(click.Option):
    """An option that also accepts its `former` names, which no help shows."""

    def __init__(self, *arguments: Any, former: Sequence[str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self._former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
import_option = click.option(
    "--import",
    "chosen",
    cls=RenamedOption,
    former=["--source"],
    multiple=True,
    metavar="IMPORT",
    help="Search only this import, by name or path; repeatable.",
)


def limit_option(default: int, things: str) -> Callable[[Command], Command]:
    """The option `--limit` of a command that lists `things`."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        metavar="N",
        help=f"Show at most N {things}.",
    )


class DrafterNames(click.ParamType[tuple[str, ...]]):
    """Parses `none`, `all`, or names separated by commas, into a tuple of names."""

    name = "drafters"

    def __init__(self, known: Sequence[str] = DRAFTERS) -> None:
        self._known = known

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "none|all|A,B"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        if value in ("none", "all"):
            return DRAFTERS if value == "all" else ()
        given = (FORMER_NAMES.get(name, name) for name in str(value).split(","))
        names = tuple(dict.fromkeys(given))
        for name in names:
            if name not in self._known:
                self.fail(f"no drafter {name!r}; choose from {', '.join(self._known)}", param, ctx)
        return names


class DraftLength(click.ParamType[int | None]):
    """Parses `auto` (None) or a number of tokens."""

    name = "draft length"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "auto|N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "auto":
            return None
        if str(value).isdecimal():
            return int(str(value))
        return self.fail(f"{value!r} is neither 'auto' nor a number of tokens", param, ctx)


class Temperature(click.ParamType[float]):
    """A finite number, zero or above."""

    name = "temperature"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            temperature = float(str(value))
        except ValueError:
            temperature = math.nan
        if not 0 <= temperature < math.inf:
            self.fail(f"{value!r} is not a number from 0 up", param, ctx)
        return temperature


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "--model": (
        "Model to use: a GGUF file, a safetensors folder, or a name `specchat models` lists.",
        {"metavar": "FILE|NAME"},
    ),
    "--data-dir": (
        f"Store everything in this directory (also {DATA_DIR_VARIABLE}).",
        {"type": click.Path(file_okay=False, path_type=Path)},
    ),
    "--drafters": (
        f"Drafters to use: {', '.join(DRAFTERS)}. [default: all]",
        {"type": DrafterNames()},
    ),
    "--draft-tokens": (
        "Draft tokens per step; auto picks what is fastest. [default: auto]",
        {"type": DraftLength()},
    ),
    "--seed": ("Sampling seed.", {"type": click.IntRange(min=0), "metavar": "N"}),
    "--temperature": (
        "Randomness; 0 = always the likeliest word.",
        {"type": Temperature(), "metavar": "T"},
    ),
    "--max-tokens": (
        "Maximum answer length, in tokens.",
        {"type": click.IntRange(min=1), "metavar": "N"},
    ),
    "--exact": (
        "No rounding differences between answers with and without drafts: bit-identical, but each"
        " step takes longer. CPU only.",
        {"is_flag": True},
    ),
    "--gpu-layers": (
        "Layers on the GPU. [default: as many as fit]",
        {"type": click.IntRange(min=0), "metavar": "N"},
    ),
    "--rpc": (
        "Put the layers on these workers (see `specchat worker`); empty for none.",
        {"metavar": "HOST:PORT,…"},
    ),
}
"""Help and click attributes of each global option."""


def global_options(hidden: bool = False) -> list[click.Parameter]:
    """New option objects; `hidden` except in the top-level help."""
    return [
        click.Option(
            [flag], help=text, hidden=hidden, expose_value=False, callback=_store, **attributes
        )
        for flag, (text, attributes) in OPTIONS.items()
    ]


def accept_global_options(command: click.Command) -> None:
    """Add the global options to `command` and its subcommands, once."""
    own = {flag for parameter in command.params for flag in parameter.opts}
    command.params += [given for given in global_options(hidden=True) if own.isdisjoint(given.opts)]
    for below in getattr(command, "commands", {}).values():
        accept_global_options(below)


def _store(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store an option in the context's `Options` if it was given."""
    options = context.obj if context.obj is not None else Options()
    given = parameter.name is not None and context.get_parameter_source(parameter.name) in _GIVEN
    context.obj = replace(options, **{str(parameter.name): value}) if given else options


_GIVEN = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
