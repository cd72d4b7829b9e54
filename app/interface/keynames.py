"""Names of keys: as people write them, as Textual reports them, as the screen shows them.

Owns which names there are. Knows no commands.
"""

from __future__ import annotations

from textual.keys import KEY_ALIASES, KEY_NAME_REPLACEMENTS, Keys, key_to_character

UNBOUND = "none"
"""Stands for no key: nothing on a keyboard is called that."""

MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}

_NAMES = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}
_MEANT = {name.lower(): key for key, name in _NAMES.items()}
_SPECIAL = {key.value for key in Keys if not key.value.startswith("<")}
_ALIASES = {alias: key for key, aliases in KEY_ALIASES.items() for alias in aliases}


def shown(key: str) -> str:
    """How a key is written for people: `Ctrl+N`, `Esc`."""
    return "+".join(_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def understood(written: str) -> str | None:
    """The key that a person means by `Ctrl+N` or `esc`, by its name; None where it is none."""
    *modifiers, last = written.split("+")
    last = _MEANT.get(last.lower(), last if len(last) == 1 and not modifiers else last.lower())
    modifiers = [modifier.lower() for modifier in modifiers]
    if not MODIFIERS.issuperset(modifiers) or not _is_named(last):
        return None
    key = "+".join([*modifiers, last])
    return _ALIASES.get(key, key)


def is_typed(key: str) -> bool:
    """Whether a key writes a character."""
    return key_to_character(key) is not None or key in KEY_NAME_REPLACEMENTS.values()


def _is_named(last: str) -> bool:
    """Whether a key is called that, modifiers aside."""
    if len(last) == 1:
        return last.isprintable()
    return last in _SPECIAL or is_typed(last)
