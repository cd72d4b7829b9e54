"""Opens a file in the person's own editor, at a line.

Owns which editor that is (`$VISUAL`, then `$EDITOR`), how it is told the line, and where in the
file a passage is now. The interface is suspended while the editor has the terminal.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from textual.app import App, SuspendNotSupported

from datastores.errors import InputError
from datastores.passages.chunks import Chunk

MAX_FILE_BYTES = 2**26
"""Files up to this size are searched for the passage; larger ones open at their first line."""
NO_EDITOR = "no editor is set: set EDITOR to open files, as in EDITOR=nano"

_LINE_FORMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("code", "codium", "code-insiders", "cursor"), ("--goto", "{path}:{line}")),
    **dict.fromkeys(("hx", "helix", "zed", "subl", "micro"), ("{path}:{line}",)),
    **dict.fromkeys(("idea", "pycharm", "gedit", "kate"), ("{path}",)),
}
"""By program, how it takes a line; all others take `+LINE PATH`, as vi, nano and emacs do."""


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
    command = editor_command(os.environ, path, line_in_file(path, chunk))
    try:
        with app.suspend():
            subprocess.run(command, check=False)
    except SuspendNotSupported as error:
        raise InputError("this terminal cannot be handed to an editor") from error
    except OSError as error:
        raise InputError(f"cannot start {command[0]}: {error.strerror}; set EDITOR") from error
