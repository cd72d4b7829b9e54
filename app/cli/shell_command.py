"""A shell command as an answer: asked for, found in the text, shown, and run if the person agrees.

What is run is exactly what was shown: an answer with characters that a terminal hides or obeys is
refused.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from app.sanitise import clean
from datastores.chats.records import WHOLE
from datastores.errors import InputError, ModelError

NEEDS_TERMINAL = "-e asks before it runs the command: use it on a terminal, without pipes"
NO_COMMAND = "the answer holds no command"
CUT_OFF = "the answer ended before its command was whole: ask again"
UNSAFE = "the command holds invisible or control characters, and is not run"

_BLOCK = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.M)
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]*>")
_PROMPT = re.compile(r"^\$ ", re.MULTILINE)


def instructions() -> str:
    """The system prompt of a chat whose answers are commands."""
    import platform  # here, as an ordinary question needs none of this

    return (
        f"Answer with one command for {shell().name} on {platform.system() or 'this system'}, in a"
        " code block, without an explanation."
    )


def shell() -> Path:
    """The person's shell, which runs the command."""
    default = "cmd.exe" if sys.platform == "win32" else "/bin/sh"
    return Path(os.environ.get("SHELL") or default)


def require_terminal() -> None:
    """Check that the person can be asked.

    Raises:
        InputError: standard input or output is not a terminal.
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise InputError(NEEDS_TERMINAL)


def command_in(answer: str, finish: str) -> str:
    """The command in an answer: its first code block, else its first line.

    Args:
        finish: how the answer ended.

    Raises:
        ModelError: there is none, it may lack its end, or a terminal would not show it as it is.
    """
    if finish != WHOLE:
        raise ModelError(CUT_OFF)
    block = _BLOCK.search(answer)
    text = block[2] if block else next((one for one in answer.splitlines() if one.strip()), "")
    command = _PROMPT.sub("", text.strip("\n")).strip()
    if not block:
        command = command.strip("`")
    if not command:
        raise ModelError(NO_COMMAND)
    if clean(command) != command:
        raise ModelError(UNSAFE)
    return command


def run_if_confirmed(command: str) -> int:
    """Show `command`, run it if the person agrees, and return its exit code; 1 if it is not run.

    Raises:
        InputError: it has a placeholder, which a shell would take for a file to read or overwrite.
    """
    click.echo(command)
    if blank := _PLACEHOLDER.search(command):
        raise InputError(f"the command is not run: replace {blank[0]} and run it yourself")
    if not click.confirm("Run it?", err=True):
        return 1
    import subprocess

    return subprocess.run([shell(), "-c", command], check=False).returncode
