"""Entry point of `specchat` and `python -m app`.

Sets up streams, signals and the umask before anything large is imported.
"""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn

PRIVATE = 0o077
"""The umask: only the owner reads what this process and its children create, SQLite's logs and
temporary files included."""

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a process to terminate; Windows has no SIGHUP."""

MAX_CAUSE_CHARACTERS = 300
"""Length of the quoted reason why a library cannot be loaded; some append a page of advice."""


def main() -> NoReturn:
    """The console script."""
    _require_utf8()
    interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if interruptible:
        # Until a command runs there is nothing to clean up, and no traceback worth reading.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.umask(PRIVATE)
    _open_standard_streams()

    try:
        from app.cli.main import INTERRUPTED, run
    except (ImportError, MemoryError, OSError) as error:
        # Importing takes 150 MB of address space, more than some `ulimit -v` allow.
        cause = " ".join(str(error.__cause__ or error).split()) or "not enough memory"
        sys.exit(f"specchat cannot start: {cause[:MAX_CAUSE_CHARACTERS]}")

    try:
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # not where nohup has it ignored
                signal.signal(number, _end)
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _require_utf8() -> None:
    """Restart in Python's UTF-8 mode where the locale and `PYTHONUTF8=0` select ASCII.

    Otherwise arguments, file names and output would lose all non-ASCII characters.
    """
    if sys.getfilesystemencoding() != "ascii" or sys.flags.utf8_mode:
        return
    # The variable is for child processes; `python -E` and `-I` ignore it.
    command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """Exit as at the end of a command, so that files are closed; a second signal kills at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _open_standard_streams() -> None:
    """Open the null device for streams that the shell closed (`>&-`), and print `?` for characters
    that a stream's encoding lacks.

    Otherwise the next file opened, perhaps a database, gets the descriptor of a closed stream, and
    what libraries print is written into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # Latin-1 has no arrows


if __name__ == "__main__":
    main()
