"""Names of keys: as people write them, as Textual reports them, as the screen shows them.

Owns which names there are. Knows no commands.
"""

from __future__ import annotations

from textual.keys import KEY_ALIASES, KEY_NAME_REPLACEMENTS, Keys, key_to_character

from datastores.errors import InputError

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


def understood(written: str, where: str) -> str:
    """The name of the key that a person means by `Ctrl+N` or `esc`.

    Raises:
        InputError: there is no such key; `where` it was written stands before the reason.
    """
    *modifiers, last = written.split("+")
    last = _MEANT.get(last.lower(), last if len(last) == 1 and not modifiers else last.lower())
    modifiers = [modifier.lower() for modifier in modifiers]
    # With a modifier, terminals tell letters and digits only.
    told = last.isalnum() if modifiers and len(last) == 1 else _is_named(last)
    if not told or not MODIFIERS.issuperset(modifiers):
        raise InputError(f"{where}: {written!r} is no key; write it like ctrl+g, alt+up or f5")
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
