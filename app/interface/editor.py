"""Opens a file, the prompt or a message in the person's own editor.

Owns which editor that is (`$VISUAL`, then `$EDITOR`), how it is told the line, where in the file a
passage is now, and the temporary file of a text that is in none, which only its owner can read and
which is removed. The interface is suspended while the editor has the terminal.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.app import App, SuspendNotSupported

from datastores.errors import InputError
from datastores.passages.chunks import Chunk

MAX_FILE_BYTES = 2**26
"""Files up to this size are searched for the passage; larger ones open at their first line."""
TEXT_FILE = "specchat.md"
NO_EDITOR = "no editor is set: set EDITOR, for example EDITOR=nano"

_LINE_FORMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("code", "codium", "code-insiders", "cursor"), ("--goto", "{path}:{line}")),
    **dict.fromkeys(("hx", "helix", "zed", "subl", "micro"), ("{path}:{line}",)),
    **dict.fromkeys(("idea", "pycharm", "gedit", "kate"), ("{path}",)),
}
"""By program, how it takes a line; all others take `+LINE PATH`, as vi, nano and emacs do."""
_WAITING: Mapping[str, str] = {
    **dict.fromkeys(
        ("code", "codium", "code-insiders", "cursor", "zed", "subl", "gedit", "idea", "pycharm"),
        "--wait",
    ),
    "kate": "--block",
}
"""By program, the option with which it returns only when the file is closed."""


def editor_command(environment: Mapping[str, str], path: Path, line: int) -> list[str]:
    """The command that opens `path` at `line`.

    Raises:
        InputError: no editor is set, or its command cannot be read.
    """
    chosen = environment.get("VISUAL") or environment.get("EDITOR") or ""
    try:
        program = shlex.split(chosen)
    except ValueError as error:
        raise InputError(f"EDITOR cannot be read: {error}") from error
    if not program:
        raise InputError(NO_EDITOR)
    form = _LINE_FORMS.get(Path(program[0]).stem, ("+{line}", "{path}"))
    absolute = str(path.absolute())
    # Replaced in this order: a path may hold braces.
    return [
        *program,
        *(part.replace("{line}", str(line)).replace("{path}", absolute) for part in form),
    ]


def line_in_file(path: Path, chunk: Chunk) -> int:
    """The line of `path` that `chunk` begins at now; 1 if it cannot be told.

    The text of a web page or an export is not the file's: its lines are found by content, if at
    all.

    Raises:
        InputError: the file is gone, or cannot be read, or is no text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from error
    if b"\0" in content:
        raise InputError(f"{path} is not a text file: read the passage here")
    lines = content.decode(errors="replace").split("\n")
    first = chunk.content.split("\n", 1)[0].strip()
    places = (
        [number for number, line in enumerate(lines, start=1) if first in line] if first else []
    )
    return min(places, key=lambda number: abs(number - chunk.first_line), default=1)


def edit(app: App[object], path: Path, chunk: Chunk) -> None:
    """Open `path` at the passage, and wait until the editor is closed.

    Raises:
        InputError: there is no editor, or it cannot be started, or the file cannot be opened.
    """
    _run(app, editor_command(os.environ, path, line_in_file(path, chunk)))


def edit_text(app: App[object], text: str) -> str:
    """Open `text`, wait until the editor is closed, and return what was saved.

    Raises:
        InputError: as for `edit`, or the editor ended with an error, or what it saved is no text.
    """
    with _temporary(text) as path:
        command = _waiting_command(path)
        if code := _run(app, command):
            raise InputError(f"{command[0]} ended with exit code {code}: your text is unchanged")
        try:
            edited = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                "what the editor saved cannot be read: your text is unchanged"
            ) from error
    # Editors end the last line; the person did not.
    return edited if text.endswith("\n") else edited.removesuffix("\n")


def view_text(app: App[object], text: str) -> None:
    """Open `text`, which cannot be changed, and wait until the editor is closed.

    Raises:
        InputError: as for `edit_text`.
    """
    with _temporary(text) as path:
        path.chmod(stat.S_IRUSR)
        _run(app, _waiting_command(path))


@contextmanager
def _temporary(text: str) -> Iterator[Path]:
    """A file with `text` in a folder of its own, which editors may put their own files beside."""
    with TemporaryDirectory(prefix="specchat-") as folder:  # its mode is 0700
        path = Path(folder) / TEXT_FILE
        path.touch(0o600)
        path.write_text(text, "utf-8")
        yield path


def _waiting_command(path: Path) -> list[str]:
    """The command that opens `path` and ends when it is closed."""
    command = editor_command(os.environ, path, 1)
    option = _WAITING.get(Path(command[0]).stem)
    if option is not None and option not in command:
        command.insert(1, option)
    return command


def _run(app: App[object], command: list[str]) -> int:
    """Leave the terminal to `command` until it ends; returns its exit code."""
    try:
        with app.suspend():
            return subprocess.run(command, check=False).returncode
    except SuspendNotSupported as error:
        raise InputError("this terminal cannot be suspended to run an editor") from error
    except OSError as error:
        raise InputError(f"cannot start {command[0]}: {error.strerror}; set EDITOR") from error
