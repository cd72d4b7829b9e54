"""Opens a file, the prompt or a message in the user's editor, `$VISUAL` or `$EDITOR`.

A text that is not a file is written to a private temporary one. The interface is suspended while
the editor has the terminal.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from textual.app import App

from app.importing.encodings import decode
from app.interface.terminal import ending, run_in_terminal
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
"""Arguments that open a file at a line, by program; others take `+LINE PATH`, like vi."""
_WAITING: Mapping[str, str] = {
    **dict.fromkeys(
        ("code", "codium", "code-insiders", "cursor", "zed", "subl", "gedit", "idea", "pycharm"),
        "--wait",
    ),
    "kate": "--block",
}
"""Options that make programs wait until the file is closed."""


def editor_command(environment: Mapping[str, str], path: Path, line: int) -> list[str]:
    """The command that opens `path` at `line`.

    Raises:
        InputError: no editor is set, or its command cannot be read.
    """
    settings = (environment.get(name, "").strip() for name in ("VISUAL", "EDITOR"))
    program = _words(next(filter(None, settings), ""))
    if not program:
        raise InputError(NO_EDITOR)
    program[0] = os.path.expanduser(program[0])
    form = _LINE_FORMS.get(Path(program[0]).stem, ("+{line}", "{path}"))
    absolute = str(path.absolute())
    # Replaced in this order: a path may hold braces.
    return [
        *program,
        *(part.replace("{line}", str(line)).replace("{path}", absolute) for part in form),
    ]


def _words(command: str) -> list[str]:
    """Split a command as a shell does; the path of a program alone may have unquoted blanks.

    Raises:
        InputError: the quotes do not match.
    """
    if shutil.which(os.path.expanduser(command)):
        return [command]
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InputError(f"EDITOR cannot be read: {error}") from error


def line_in_file(path: Path, chunk: Chunk) -> int:
    """The line of `path` at which `chunk` begins now; 1 if it is not found.

    It is searched by content, since the file may have changed, and the text of a web page or an
    export has other lines than the file.

    Raises:
        InputError: the file cannot be read or is not a text file.
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
        InputError: there is no editor, it cannot be started or ended with an error, or the file
            cannot be opened.
    """
    _require_success(*_run(app, editor_command(os.environ, path, line_in_file(path, chunk))))


def edit_text(app: App[object], text: str) -> str:
    """Open `text`, wait until the editor is closed, and return what was saved.

    An exit code discards the text, as with `:cq` in vi. If the editor was killed, what it saved
    before is returned.

    Raises:
        InputError: as for `edit`, or the saved file is not text.
    """
    with _temporary(text) as path:
        program, code = _run(app, _waiting_command(path))
        try:
            saved = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"what {program} saved cannot be read: your text is unchanged"
            ) from error
    killed = "exit code" not in ending(code)
    if code and not (killed and saved != text.encode()):
        raise InputError(f"{program} {ending(code)}: your text is unchanged")
    try:
        edited = decode(saved)[0]
    except InputError as error:
        raise InputError(f"what {program} saved is not text: your text is unchanged") from error
    # Editors add a newline at the end of the file.
    return edited if text.endswith("\n") else edited.removesuffix("\n")


def view_text(app: App[object], text: str) -> None:
    """Open `text` read-only, and wait until the editor is closed.

    Raises:
        InputError: as for `edit`.
    """
    with _temporary(text) as path:
        path.chmod(stat.S_IRUSR)
        _require_success(*_run(app, _waiting_command(path)))


@contextmanager
def _temporary(text: str) -> Iterator[Path]:
    """A file with `text` in a folder of its own, since editors put other files beside it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        folder = TemporaryDirectory(prefix="specchat-", ignore_cleanup_errors=True)  # mode 0700
        path = Path(folder.name) / TEXT_FILE
        path.touch(0o600)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(
            f"cannot write a file for the editor: {error.strerror}; set TMPDIR to another folder"
        ) from error
    with folder:
        yield path


def _waiting_command(path: Path) -> list[str]:
    """The command that opens `path` and ends when the file is closed."""
    command = editor_command(os.environ, path, 1)
    option = _WAITING.get(Path(command[0]).stem)
    if option is not None and option not in command:
        command.insert(1, option)
    return command


def _run(app: App[object], command: list[str]) -> tuple[str, int]:
    """Run `command` in the terminal; returns the editor's name and exit code."""
    program = command[0]
    if shutil.which(program) is None:
        raise InputError(f"the editor {program} is not installed: set EDITOR to another one")
    return program, run_in_terminal(app, command)


def _require_success(program: str, code: int) -> None:
    if code:
        raise InputError(f"{program} {ending(code)}")
