"""A group of commands that are imported when they are called, and take the global options too."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from app.cli.choices import accept_global_options


class LazyGroup(click.Group):
    """A group that knows its commands by place: name → "module:attribute"."""

    def __init__(self, *arguments: Any, commands_at: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._places = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None, as click asks, where there is none of that name."""
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        accept_global_options(command)
        return command
