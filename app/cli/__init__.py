"""The `specchat` command: global options, commands found by name, and the one edge for errors.

Commands are imported when they are called, so that the one-shot path loads neither Textual, torch,
transformers nor faiss. Every named failure of the whole program is translated here and nowhere
else: one line on stderr, exit code 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from app.cli.choices import accept_global_options, global_options
from app.options import Options
from app.sanitise import one_line
from datastores.errors import SpecchatError

COMMANDS = {
    "doctor": "app.cli.doctor:doctor",
    "locate": "app.cli.locate:locate",
}
"""Every command and where it is found; each accepts the global options after its name too."""

DONE, FAILED, INTERRUPTED, BROKEN_PIPE = 0, 1, 130, 141
"""Exit codes beside click's 2 for usage; the last two are 128 + the signal's number."""

ERROR_LENGTH = 2000
"""Characters of an error line: long paths fit, a hostile file name does not fill the screen."""


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        accept_global_options(command)
        return command


@click.group(
    cls=Commands,
    params=global_options(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="specchat", message="specchat %(version)s")
@click.pass_context
def specchat(context: click.Context) -> None:
    """A terminal assistant on your own machine that gets faster the more it is used.

    Without a command it opens the interface. The options below may stand before or after the name
    of a command.
    """
    if context.invoked_subcommand is None:
        import_module("app.interface.main").run(context.ensure_object(Options))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return int(specchat.main(arguments, "specchat", standalone_mode=False) or DONE)
    except SpecchatError as error:
        click.echo(f"specchat: {one_line(str(error), ERROR_LENGTH)}", err=True)
        return FAILED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def _discard_output() -> None:
    """The reader is gone: let the interpreter's last flush go nowhere instead of complaining."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
