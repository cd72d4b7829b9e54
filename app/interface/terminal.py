"""The terminal that the interface runs in: its title, its notifications, and lending it.

Terminals ignore escape sequences that they do not know. tmux shows the title itself, and passes the
others on only if they are wrapped (tmux(1), allow-passthrough). Titles come from models and are
sanitised here. `run_in_terminal` is the only place that suspends the interface.
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
    """`sequence`; in tmux, wrapped so that it is passed on."""
    if not environment.get("TMUX"):
        return sequence
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def title_sequence(chat: str, *, private: bool) -> str:
    """Sets the terminal's title to that of a chat; others may see it, so not of a private one."""
    title = PRIVATE_TITLE if private else one_line(chat, MAX_TITLE)
    return f"\x1b]2;{title} · {NAME}\a" if title else f"\x1b]2;{NAME}\a"


@dataclass(frozen=True, slots=True)
class AnswerNotice:
    """How to notify the user of an answer that ends while they are elsewhere.

    Attributes:
        kind: one of `app.config.NOTIFICATIONS`.
        after: shortest such answer, in seconds.
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
    """The key that Textual reads as Enter where a terminal has no newer protocol for keys."""

    KEY = "alt+enter"


def recognise_alt_enter() -> None:
    """Have Textual read Escape and a carriage return, sent together, as Alt+Enter.

    Otherwise whoever wants a new line sends half of a message.
    """
    cast("dict[str, object]", ANSI_SEQUENCES_KEYS)["\x1b\r"] = (AltEnter.KEY,)


def restore_only_after_stop(driver: object) -> None:
    """Have SIGCONT restore the screen only if the program was stopped.

    It also follows the SIGHUP of a closed terminal. Textual would set the screen up a second time,
    with a second thread that reads keys.
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
    """Suspend the interface, leave the terminal to `command`, and come back when it has ended.

    Returns its exit code; negative if a signal ended it.

    Args:
        environment: of the command; None for this process's.

    Raises:
        InputError: the terminal cannot be suspended, or the command cannot be started.
    """
    failure: OSError | None = None
    code = 0
    try:
        # Textual does not come back from an error in this block: none may leave it.
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
    """Ctrl-C is for the program that has the terminal; the terminal's modes are restored after it.

    A program that is killed leaves the modes as it needed them.
    """
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
    """How a program ended, by its exit code: `ended with exit code 3`, `was ended by SIGTERM`.

    A shell script ends with 128 and the number of the signal that ended its last program.
    """
    number = -code if code < 0 else code - 128
    names = {one.value: one.name for one in signal.Signals}
    return f"was ended by {names[number]}" if number in names else f"ended with exit code {code}"


def is_terminal_gone() -> bool:
    """Whether the window that the interface was in was closed, or its connection lost."""
    try:
        os.get_terminal_size(sys.__stdin__.fileno() if sys.__stdin__ else 0)
    except OSError as error:
        return error.errno == errno.EIO
    return False
