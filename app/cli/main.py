"""The `specchat` command: global options, lazy loading of commands, translation of errors.

Commands are imported when they are called, so that `specchat ask` loads neither Textual, torch,
transformers nor faiss. Errors become one line on stderr and exit code 1 here, and nowhere else.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from app.cli.global_options import accept_global_options, global_options
from app.config import Options
from app.locations import has_working_folder, locate
from app.sanitise import one_line
from datastores.errors import SpecchatError

MAX_NAME_CHARACTERS = 40
"""Length at which the name of an unknown command is cut in the error."""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use.

    `commands_at` maps names to "module:attribute", and `former` names of earlier versions, which no
    help shows, to present ones.
    """

    def __init__(
        self,
        *arguments: Any,
        commands_at: Mapping[str, str],
        former: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self._commands_at = commands_at
        self._former = former or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(self._commands_at)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for an unknown one suggests similar names."""
        args = [*(self._former.get(name, name) for name in args[:1]), *args[1:]]
        if args and args[0] not in self._commands_at and not args[0].startswith("-"):
            near = get_close_matches(args[0], self._commands_at, 2)
            meant = f"did you mean {' or '.join(near)}?" if near else "see --help for all of them"
            ctx.fail(f"no command '{one_line(args[0], MAX_NAME_CHARACTERS)}': {meant}")
        if not LASTING.intersection(args[:1]):
            _announce(ctx, args)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and exit silently if the reader of its output has gone (`| head -1`)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(READER_GONE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None, as click requires, if there is no such command."""
        if cmd_name not in self._commands_at:
            return None
        module, _, name = self._commands_at[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        accept_global_options(command)
        return command


def _announce(context: click.Context, arguments: Sequence[str]) -> None:
    """Pause idle work of all processes until `context` closes.

    Before the command is imported, which takes a third of a second; opening its stores does it too,
    for commands that say only later where these are.
    """
    if any(one.startswith("--data-dir") for one in arguments):
        return
    from app.foreground import Foreground

    data_dir = context.ensure_object(Options).data_dir
    context.call_on_close(Foreground(locate(data_dir).foreground).begin())


COMMANDS = {
    "ask": "app.cli.ask:ask",
    "bench": "app.cli.bench:bench",
    "chats": "app.cli.chats:chats",
    "delete": "app.cli.chats:delete",
    "demo": "app.cli.demo:demo",
    "doctor": "app.cli.doctor:doctor",
    "export": "app.cli.chats:export",
    "find": "app.cli.texts:find",
    "forget": "app.cli.texts:forget",
    "import": "app.cli.texts:import_",
    "locate": "app.cli.doctor:locate",
    "models": "app.cli.models:models",
    "restore": "app.cli.chats:restore",
    "search": "app.cli.chats:search",
    "serve": "app.cli.serve:serve",
    "shell-init": "app.cli.shell_init:shell_init",
    "imports": "app.cli.texts:imports",
    "stats": "app.cli.stats:stats",
    "draft": "app.cli.draft:draft",
    "worker": "app.cli.worker:worker",
}
"""Every command and where it is defined; each also accepts the global options after its name."""

LASTING = frozenset(("serve",))
"""Commands that run for hours; they tell themselves when somebody waits for them."""

DONE, FAILED, INTERRUPTED, READER_GONE = 0, 1, 130, 141
"""Exit codes; click adds 2 for wrong usage. The last two are a shell's codes for a program killed
by SIGINT or SIGPIPE."""

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of writing to standard output when it is redirected into a file."""

MACHINE_ERRORS = (
    *(*DISK_ERRORS, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EAGAIN),
    *(errno.EMFILE, errno.ENFILE),
)
"""Errors that name an exhausted resource or a missing permission, wherever they occur."""

NO_MEMORY = "not enough memory: close other programs, or raise the limit (`ulimit -v`)"

MAX_ERROR_CHARACTERS = 2000
"""Enough for long paths; a hostile file name does not fill the screen."""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    former={"sources": "imports", "student": "draft"},
    params=global_options(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="specchat", message="specchat %(version)s")
@click.pass_context
def specchat(context: click.Context) -> None:
    """A terminal assistant on your own machine that gets faster the more it is used.

    Without a command, the interface opens. Options may come before or after the command.
    """
    if context.invoked_subcommand is None:
        import_module("app.interface.app").run(context.ensure_object(Options))


def run(arguments: Sequence[str], group: click.Group = specchat, name: str = "specchat") -> int:
    """Run one command line of `group` and return its exit code."""
    try:
        return int(group.main(arguments, name, standalone_mode=False) or DONE)
    except SpecchatError as error:
        return _failed(str(error))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except OSError as error:
        message = _system_error(error)
        if not message:
            raise
        _discard_output()
        return _failed(message)
    except MemoryError:
        return _failed(NO_MEMORY)
    except ImportError as error:
        # Some libraries append a page of advice to the cause.
        return _failed(f"a library cannot be loaded: {error.__cause__ or error}")


def _failed(message: str) -> int:
    click.echo(f"specchat: {one_line(message, MAX_ERROR_CHARACTERS)}", err=True)
    return FAILED


def _system_error(error: OSError) -> str:
    """The message for an error that no code expected; empty if it is a bug in specchat."""
    if error.filename is not None:
        # Other errors on named files are translated where the files are opened.
        known = error.errno in MACHINE_ERRORS
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if known else ""
    if error.errno in DISK_ERRORS:
        return f"cannot write the output: {error.strerror}"
    if isinstance(error, FileNotFoundError) and not has_working_folder():
        return "the working folder was deleted: change to another one with cd"
    return str(error.strerror) if error.errno in MACHINE_ERRORS else ""


def _discard_output() -> None:
    """Redirect standard output to the null device, since Python flushes its buffer at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
