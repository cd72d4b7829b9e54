"""The terminal around the interface: its title, notifications, and suspending for other programs.

Terminals ignore escape sequences that they do not know. tmux handles the title itself, and passes
other sequences on only if they are wrapped (tmux(1), allow-passthrough).
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.app import App, SuspendNotSupported

from app.config import BELL, NOTIFY_OFF, OSC_9
from app.sanitise import one_line
from datastores.errors import InputError

NAME = "specchat"
PRIVATE_TITLE = "Private chat"
MAX_TITLE = 80

KEEP_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Save and restore the terminal's title (XTWINOPS, as in xterm)."""


def for_terminal(sequence: str, environment: Mapping[str, str]) -> str:
    """`sequence`, wrapped in tmux so that it is passed on."""
    if not environment.get("TMUX"):
        return sequence
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def title_sequence(chat: str, *, private: bool) -> str:
    """Sets the terminal's title to the chat's, except of a private one: others may see it."""
    title = PRIVATE_TITLE if private else one_line(chat, MAX_TITLE)
    return f"\x1b]2;{title} · {NAME}\a" if title else f"\x1b]2;{NAME}\a"


@dataclass(frozen=True, slots=True)
class AnswerNotice:
    """How to notify the user of an answer that ends while another window has the focus.

    Attributes:
        kind: one of `app.config.NOTIFICATIONS`.
        after: minimum duration of an answer to notify of, in seconds.
    """

    kind: str = NOTIFY_OFF
    after: float = 10

    def is_due(self, seconds: float, *, focused: bool) -> bool:
        """Whether to notify of an answer that took `seconds`."""
        return self.kind != NOTIFY_OFF and not focused and seconds >= self.after

    def sequence(
        self, chat: str, environment: Mapping[str, str], *, private: bool, failed: bool
    ) -> str:
        """Notifies that an answer in `chat` has ended."""
        if self.kind == BELL:
            return "\a"
        ended = "The answer failed" if failed else "The answer is ready"
        body = ended if private or not chat else f"{ended}: {one_line(chat, MAX_TITLE)}"
        if self.kind == OSC_9:
            return for_terminal(f"\x1b]9;{NAME}: {body}\a", environment)
        return for_terminal(f"\x1b]777;notify;{NAME};{body.replace(';', ',')}\a", environment)


class AltEnter(StrEnum):
    """The key that Textual reports as Enter without a modern keyboard protocol."""

    KEY = "alt+enter"


def recognise_alt_enter() -> None:
    """Make Textual read Escape and a carriage return in one go as Alt+Enter.

    Otherwise Alt+Enter sends an unfinished message instead of adding a line.
    """
    cast("dict[str, object]", ANSI_SEQUENCES_KEYS)["\x1b\r"] = (AltEnter.KEY,)


def restore_only_after_stop(driver: object) -> None:
    """Make SIGCONT restore the screen only if the program was stopped.

    SIGCONT also follows the SIGHUP of a closed terminal, where Textual would start the driver a
    second time, with a second thread that reads keys.
    """
    if sys.platform == "win32" or not hasattr(driver, "_must_signal_resume"):
        return
    restore = signal.getsignal(signal.SIGCONT)

    def continued(number: int, frame: FrameType | None) -> None:
        if driver._must_signal_resume and callable(restore):
            restore(number, frame)

    signal.signal(signal.SIGCONT, continued)


def run_in_terminal(
    app: App[object], command: Sequence[str], environment: Mapping[str, str] | None = None
) -> int:
    """Suspend the interface, run `command` in the terminal, and resume when it has ended.

    Returns its exit code; negative if a signal ended it.

    Args:
        environment: environment of the command; None for this process's.

    Raises:
        InputError: the terminal cannot be suspended, or the command cannot be started.
    """
    failure: OSError | None = None
    code = 0
    try:
        # Textual does not resume after an exception in this block.
        with app.suspend(), _lent():
            try:
                code = subprocess.run(command, check=False, env=environment).returncode
            except OSError as error:
                failure = error
    except SuspendNotSupported as error:
        raise InputError(f"this terminal cannot be suspended to run {command[0]}") from error
    if failure is not None:
        raise InputError(f"cannot start {command[0]}: {failure.strerror}") from failure
    return code


@contextmanager
def _lent() -> Iterator[None]:
    """Leave Ctrl-C to the program in the terminal, and restore the terminal's modes after it, since
    a program that is killed does not."""
    keys = {signal.SIGINT} if sys.platform == "win32" else {signal.SIGINT, signal.SIGQUIT}
    # A handler, unlike SIG_IGN, is not inherited.
    handlers = {key: signal.signal(key, lambda *_: None) for key in keys}
    try:
        with _modes_restored():
            yield
    finally:
        for key, handler in handlers.items():
            signal.signal(key, handler)


@contextmanager
def _modes_restored() -> Iterator[None]:
    if sys.platform == "win32" or sys.__stdin__ is None or not sys.__stdin__.isatty():
        yield
        return
    import termios

    modes = termios.tcgetattr(sys.__stdin__)
    yield
    termios.tcsetattr(sys.__stdin__, termios.TCSADRAIN, modes)


def ending(code: int) -> str:
    """How a program ended: `ended with exit code 3`, `was ended by SIGTERM`.

    A shell returns 128 plus the signal's number if a signal ended its last program.
    """
    number = -code if code < 0 else code - 128
    names = {one.value: one.name for one in signal.Signals}
    return f"was ended by {names[number]}" if number in names else f"ended with exit code {code}"


def is_terminal_gone() -> bool:
    """Whether the terminal window was closed, or the connection to it lost."""
    try:
        os.get_terminal_size(sys.__stdin__.fileno() if sys.__stdin__ else 0)
    except OSError as error:
        return error.errno == errno.EIO
    return False
