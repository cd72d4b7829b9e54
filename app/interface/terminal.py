"""Escape sequences for the terminal: its title, and a notification when a long answer ends.

Terminals ignore sequences that they do not know. tmux shows the title itself, and passes the others
on only if they are wrapped (tmux(1), allow-passthrough). Titles come from models and are sanitised
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.config import BELL, NOTIFY_OFF, OSC_9
from app.sanitise import one_line

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
