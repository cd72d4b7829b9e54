"""Makes untrusted text safe to print on a terminal.

Text from models, documents, files, titles and errors may contain escape sequences, or characters
that reorder or hide their neighbours. Whatever shows such text passes it through this module once,
and shows the result as plain text, never as markup: brackets are kept. Stored text is unchanged.

Each character is judged on its own, so fragments of a stream can be cleaned separately: a sequence
needs its introducer (ESC, or a C1 control such as U+009B), and no introducer survives. The rest of
the sequence stays as harmless letters. Only CR LF can be split; `StreamCleaner` joins it.

Characters that change the width of their neighbours are removed, since terminals disagree on the
result and columns would shift: zero-width joiners (an emoji family becomes its members, and Persian
loses some non-joining letters), emoji style selectors and skin tones.
"""

from __future__ import annotations

import os
import re

TITLE_LENGTH = 200
"""The default length of a line made by `one_line`, in characters."""

_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f"
_REPLACED = "\ud800-\udfff\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)
_BREAKS = "\u2028\u2029"
_HIDDEN = (
    "\u00ad\u061c\u180e"  # soft hyphen, Arabic letter mark, Mongolian vowel separator
    "\u200b-\u200f\u202a-\u202e"  # zero width, marks and embeddings of direction
    "\u2060-\u206f\ufeff\ufff9-\ufffb"  # joiners, isolates, byte order mark, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical format controls
    "\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"  # text and emoji style, skin tones
    "\U000e0000-\U000e0fff"  # tags and everything else that is ignorable by default
)
_HOSTILE = re.compile(f"\r\n?|[{_CONTROLS}{_REPLACED}{_BREAKS}{_HIDDEN}]")
_HIDDEN_ONE = re.compile(f"[{_HIDDEN}]")


def clean(text: str) -> str:
    """`text` without control, invisible and width-changing characters.

    Newlines and tabs stay; other line ends (CR LF, CR, U+2028/9) become newlines. Other C0 controls
    and DEL become their pictures (ESC becomes U+241B); C1 controls, lone surrogates and
    noncharacters become U+FFFD. The rest is removed.
    """
    return _HOSTILE.sub(_harmless, text)


class StreamCleaner:
    """Cleans a text in fragments; joined, they equal `clean` of the whole text."""

    def __init__(self) -> None:
        self._after_return = False

    def clean(self, fragment: str) -> str:
        """Clean the next fragment."""
        rest = fragment.removeprefix("\n") if self._after_return else fragment
        self._after_return = fragment.endswith("\r") if fragment else self._after_return
        return clean(rest)


def one_line(text: str, limit: int = TITLE_LENGTH) -> str:
    """`clean(text)` on one line of at most `limit` characters: for titles, names and errors."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def tilde_path(path: str, limit: int = 400) -> str:
    """A path on one line for display, with `~` for the home directory."""
    home = os.path.expanduser("~")
    inside = path == home or path.startswith(f"{home}/")
    return one_line("~" + path.removeprefix(home) if inside else path, limit)


def _harmless(match: re.Match[str]) -> str:
    character = match[0]
    if _HIDDEN_ONE.match(character):
        return ""
    if character in _BREAKS or character[0] == "\r":
        return "\n"
    if character < " ":
        return chr(0x2400 + ord(character))
    return "\u2421" if character == "\x7f" else "\ufffd"
