"""The `specchat` command: global options, commands found by name, and the one edge for errors.

Commands are imported when they are called, so that the one-shot path loads neither Textual, torch,
transformers nor faiss. Every named failure of the whole program is translated here and nowhere
else: one line on stderr, exit code 1.

A group of commands that are imported when they are called, and take the global options too.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from app.cli.global_options import accept_global_options, global_options
from app.config import Options
from app.sanitise import one_line
from datastores.errors import SpecchatError


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


COMMANDS = {
    "ask": "app.cli.ask:ask",
    "bench": "app.cli.bench.commands:bench",
    "chats": "app.cli.chats:chats",
    "delete": "app.cli.chats:delete",
    "doctor": "app.cli.doctor:doctor",
    "export": "app.cli.chats:export",
    "forget": "app.cli.texts:forget",
    "import": "app.cli.texts:import_",
    "locate": "app.cli.doctor:locate",
    "models": "app.cli.models:models",
    "restore": "app.cli.chats:restore",
    "search": "app.cli.chats:search",
    "sources": "app.cli.texts:sources",
}
"""Every command and where it is found; each accepts the global options after its name too."""

DONE, FAILED, INTERRUPTED = 0, 1, 130
"""Exit codes beside click's own: 2 for wrong usage, a quiet 1 where a pipe's reader left."""

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How the system says that what is redirected into a file cannot be written."""

ERROR_LENGTH = 2000
"""Characters of an error line: long paths fit, a hostile file name does not fill the screen."""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
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
        import_module("app.interface.app").run(context.ensure_object(Options))


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
    except OSError as error:
        # What is read and written by name is named where that happens: this is standard output.
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        click.echo(f"specchat: cannot write the output: {error.strerror}", err=True)
        return FAILED


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))
