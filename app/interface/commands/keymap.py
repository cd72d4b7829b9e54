"""Which key runs what: the names that keys are remapped by, and which remapping makes sense.

Owns the checks: each name exists, each key can be pressed, and none means two things in one place.
What the names run is the business of the screens that bind them.

Names of keys: as people write them, as Textual reports them, as the screen shows them.

Owns which names there are. Knows no commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from typing import Protocol, runtime_checkable

from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.keys import KEY_ALIASES, KEY_NAME_REPLACEMENTS, key_to_character
from textual.keys import Keys as TextualKeys

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
_SPECIAL = {key.value for key in TextualKeys if not key.value.startswith("<")}
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


_HINT = re.compile(r"\{([a-z.-]+)\}")


@dataclass(frozen=True, slots=True)
class Scope:
    """A place where keys work.

    Attributes:
        title: where, for people.
        bindings: its own; each has an id, its name.
        editing: those of the text box in it, which takes keys first; None where one cannot type.
        around: the scope whose keys work here too.
    """

    title: str
    bindings: Sequence[BindingType]
    editing: Sequence[BindingType] | None = None
    around: Scope | None = None

    def commands(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """By name: what it does, and the keys it has by itself."""
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        for bound in Binding.make_bindings(self.bindings):
            assert bound.id is not None, bound
            _, keys = found.get(bound.id, ("", ()))
            own = () if bound.key == UNBOUND else (bound.key,)
            found[bound.id] = bound.description, keys + own
        return found


class Keys:
    """Every name with its keys.

    Attributes:
        keymap: what was chosen, as Textual takes it.
    """

    def __init__(
        self, scopes: Sequence[Scope], chosen: Mapping[str, str] | None = None, where: str = "keys"
    ) -> None:
        """The bindings of `scopes`, with `chosen` (name → keys, by commas) in place of their own.

        Args:
            where: what holds them, for the error.

        Raises:
            InputError: an unknown name, no key, or a key that means something else there.
        """
        self._where = where
        self._scopes = scopes
        known = {name: found for scope in scopes for name, found in scope.commands().items()}
        self._titles = {name: title for name, (title, _) in known.items()}
        self._own = {name: keys for name, (_, keys) in known.items()}
        self._keys = dict(self._own)
        for name, keys in (chosen or {}).items():
            self._keys[name] = self._understood(name, keys)
        self.keymap = {name: ",".join(self._keys[name]) or UNBOUND for name in chosen or {}}
        for scope in scopes:
            self._require_no_clash(scope)
        for scope in scopes:
            self._require_free_for_text(scope)

    def shown(self, name: str) -> str:
        """All keys of a name, for people; empty where it has none."""
        return ", ".join(shown(key) for key in self._keys[name])

    def fill(self, hint: str) -> str:
        """`hint` with each `{name}` replaced by its first key, or where it has none its title."""

        def key_of(found: re.Match[str]) -> str:
            keys = self._keys[found[1]]
            return shown(keys[0]) if keys else f"“{self._titles[found[1]]}”"

        return _HINT.sub(key_of, hint)

    def table(self) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
        """By place: every name, its keys for people, and what it does."""
        for scope in self._scopes:
            names = scope.commands()
            yield scope.title, [(name, self.shown(name), self._titles[name]) for name in names]

    def _understood(self, name: str, keys: str) -> tuple[str, ...]:
        """The keys that were chosen for `name`."""
        if name not in self._own:
            near = get_close_matches(name, self._own, 1)
            meant = f"did you mean {near[0]}?" if near else "the help screen lists them"
            raise self._wrong(f"there is no command of the name {name!r}; {meant}")
        written = filter(None, map(str.strip, keys.split(",")))
        return tuple(understood(key, f"{self._where}: {name}") for key in written)

    def _require_no_clash(self, scope: Scope) -> None:
        names = {**scope.commands(), **(scope.around.commands() if scope.around else {})}
        for one, other in combinations(names, 2):
            for key in self._keys[one]:
                if key not in self._keys[other]:
                    continue
                if key not in self._own[one] or key not in self._own[other]:
                    raise self._wrong(
                        f"{key} would be {one} and {other}; give one of them another key"
                    )

    def _require_free_for_text(self, scope: Scope) -> None:
        """Raise where a chosen key would write or edit text."""
        if scope.editing is None:
            return
        taken = {bound.key for bound in Binding.make_bindings(scope.editing)}
        for name in scope.commands():
            for key in self._keys[name]:
                if key not in self._own[name] and (key in taken or is_typed(key)):
                    raise self._wrong(
                        f"{key} for {name} writes or edits text there; choose another key"
                    )

    def _wrong(self, reason: str) -> InputError:
        return InputError(f"{self._where}: {reason}")


@runtime_checkable
class HasKeys(Protocol):
    """An application with keys."""

    keys: Keys


def keys_of(node: DOMNode) -> Keys:
    """The keys of the application that `node` belongs to."""
    app: object = node.app
    assert isinstance(app, HasKeys)
    return app.keys
