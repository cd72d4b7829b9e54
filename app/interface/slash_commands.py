"""Parses and completes slash commands.

`/name argument` runs the command with that slash name; `//text` is the message `/text`. Anything
else is a message, including `/ text` and `/* text */`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

_LINE = re.compile(r"/(?P<name>[A-Za-z][^\s]*)(?:\s+(?P<argument>.*))?", re.DOTALL)
_ESCAPED = re.compile(r"//+[^\s/]")
_NAME_SO_FAR = re.compile(r"/(?P<name>[A-Za-z-]*)")


@dataclass(frozen=True, slots=True)
class SlashName:
    """The slash name of a command.

    Attributes:
        name: without the slash.
        argument: argument as shown in help (`[PATH]`); empty for none.
        help: one line on what the command does.
    """

    name: str
    argument: str
    help: str


@dataclass(frozen=True, slots=True)
class SlashLine:
    """A line that runs a command.

    Attributes:
        name: as typed, without the slash; there may be no such command.
        argument: the rest of the line, or empty.
    """

    name: str
    argument: str


def parse(text: str) -> SlashLine | str:
    """Parse `text` as a command or a message."""
    if _ESCAPED.match(text):
        return text[1:]
    found = _LINE.fullmatch(text.rstrip())
    return SlashLine(found["name"], (found["argument"] or "").strip()) if found else text


def as_typed(message: str) -> str:
    """The text to type in order to send `message`."""
    return message if parse(message) == message else f"/{message}"


def completions(text: str, names: Iterable[SlashName]) -> list[SlashName]:
    """Commands whose names begin with `text`, then those whose names contain it."""
    found = _NAME_SO_FAR.fullmatch(text)
    if found is None:
        return []
    typed = found["name"].lower()
    known = list(names)
    begin = [one for one in known if one.name.startswith(typed)]
    return begin + [one for one in known if typed in one.name and one not in begin]


def unknown(name: str, names: Sequence[SlashName]) -> str:
    """The error for an unknown command, with a suggestion."""
    known = [one.name for one in names]
    near = get_close_matches(name.lower(), known, 1, 0.5) or [
        one for one in known if one.startswith(name[:1].lower())
    ]
    way_out = f"Did you mean /{near[0]}?" if near else "Type / to list all."
    if "/" in name:
        way_out = f"To attach a file, type @/{name}."
    return f"No command /{name}. {way_out} To send it as a message, type //{name}."
