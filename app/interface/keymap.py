"""The keymap: default and remapped keys by binding id, and the checks of a remapping.

Textual applies a remapping (`App.set_keymap`, by binding id) but reports neither unknown ids nor
unknown keys, and a clash only when the key is pressed. So this module checks at start-up that each
id and each key exists, and that no key has two meanings in one scope. It also formats keys for
hints, the help screen and the generated pages.
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
"""The key of an unbound binding; no keyboard has a key of this name."""

FORMER_IDS = {
    "answer.sources": "answer.citations",
    "importing.sources": "importing.imports",
    **{
        f"sources.{name}": f"imports.{name}"
        for name in (
            *("again", "watch", "forget", "import", "close"),
            *("up", "down", "page-up", "page-down"),
        )
    },
}
"""Former → present binding ids in settings."""

MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}

_DISPLAY_NAMES = {
    "escape": "Esc",
    "delete": "Del",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}
_KEYS_BY_DISPLAY_NAME = {name.lower(): key for key, name in _DISPLAY_NAMES.items()}
_SPECIAL_KEYS = {key.value for key in TextualKeys if not key.value.startswith("<")}
_ALIASES = {alias: key for key, aliases in KEY_ALIASES.items() for alias in aliases}


def display_key(key: str) -> str:
    """A key as shown to users: `Ctrl+N`, `Esc`."""
    return "+".join(_DISPLAY_NAMES.get(part, part.capitalize()) for part in key.split("+"))


def parse_key(written: str, where: str) -> str:
    """Textual's name of a key that is written like `Ctrl+N` or `esc`.

    Args:
        where: prefix of error messages.

    Raises:
        InputError: there is no such key.
    """
    *modifiers, last = written.split("+")
    last = _KEYS_BY_DISPLAY_NAME.get(
        last.lower(), last if len(last) == 1 and not modifiers else last.lower()
    )
    modifiers = [modifier.lower() for modifier in modifiers]
    # With a modifier, terminals report only letters and digits.
    exists = last.isalnum() if modifiers and len(last) == 1 else _is_key_name(last)
    if not exists or not MODIFIERS.issuperset(modifiers):
        raise InputError(f"{where}: {written!r} is not a key; examples: ctrl+g, alt+up, f5")
    key = "+".join([*modifiers, last])
    return _ALIASES.get(key, key)


def writes_character(key: str) -> bool:
    """Whether a key types a character."""
    return key_to_character(key) is not None or key in KEY_NAME_REPLACEMENTS.values()


def _is_key_name(last: str) -> bool:
    if len(last) == 1:
        return last.isprintable()
    return last in _SPECIAL_KEYS or writes_character(last)


_PLACEHOLDER = re.compile(r"\{([a-z.-]+)\}")


@dataclass(frozen=True, slots=True)
class Scope:
    """A place where keys work: a screen, a dialog or a focused widget.

    Attributes:
        bindings: its own bindings; each has an id.
        text_box: bindings of its text box, which receives keys first; None without a text box.
        enclosing: scope whose keys also work here.
        text_box_name: name of the text box in errors.
    """

    title: str
    bindings: Sequence[BindingType]
    text_box: Sequence[BindingType] | None = None
    enclosing: Scope | None = None
    text_box_name: str = "the text box"

    def commands(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Title and default keys by binding id."""
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        for bound in Binding.make_bindings(self.bindings):
            assert bound.id is not None, bound
            _, keys = found.get(bound.id, ("", ()))
            key = () if bound.key == UNBOUND else (bound.key,)
            found[bound.id] = bound.description, keys + key
        return found


class Keymap:
    """The keys of every binding id.

    Attributes:
        overrides: remapped keys by binding id, as `App.set_keymap` expects them.
    """

    def __init__(
        self, scopes: Sequence[Scope], chosen: Mapping[str, str] | None = None, where: str = "keys"
    ) -> None:
        """Replace default keys of `scopes` by `chosen` ones (binding id → keys, comma-separated).

        Args:
            where: prefix of error messages.

        Raises:
            InputError: an unknown id, an unknown key, or a key that has another meaning there.
        """
        self._where = where
        self._scopes = scopes
        known = {name: found for scope in scopes for name, found in scope.commands().items()}
        self._titles = {name: title for name, (title, _) in known.items()}
        self._defaults = {name: keys for name, (_, keys) in known.items()}
        self._keys = dict(self._defaults)
        chosen = {FORMER_IDS.get(name, name): keys for name, keys in (chosen or {}).items()}
        for name, keys in chosen.items():
            self._keys[name] = self._parse(name, keys)
        self.overrides = {name: ",".join(self._keys[name]) or UNBOUND for name in chosen}
        for scope in scopes:
            self._check_clashes(scope)
        for scope in scopes:
            self._check_text_box(scope)

    def display(self, name: str) -> str:
        """All keys of a binding id, as shown to users; empty if it is unbound."""
        return ", ".join(display_key(key) for key in self._keys[name])

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys of a binding id, as Textual names them."""
        return self._keys[name]

    def fill(self, hint: str) -> str:
        """`hint` with each `{id}` replaced by its first key, or by its title if it is unbound."""

        def key_of(found: re.Match[str]) -> str:
            keys = self._keys[found[1]]
            return display_key(keys[0]) if keys else f"“{self._titles[found[1]]}”"

        return _PLACEHOLDER.sub(key_of, hint)

    def by_scope(self) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
        """For each scope, its title and its bindings as (id, keys, title)."""
        for scope in self._scopes:
            names = scope.commands()
            yield scope.title, [(name, self.display(name), self._titles[name]) for name in names]

    def _parse(self, name: str, keys: str) -> tuple[str, ...]:
        if name not in self._defaults:
            near = get_close_matches(name, self._defaults, 1)
            meant = f"did you mean {near[0]}?" if near else "the help (F1) lists them"
            raise self._error(f"unknown command {name!r}; {meant}")
        written = filter(None, map(str.strip, keys.split(",")))
        return tuple(parse_key(key, f"{self._where}: {name}") for key in written)

    def _check_clashes(self, scope: Scope) -> None:
        names = {**scope.commands(), **(scope.enclosing.commands() if scope.enclosing else {})}
        for one, other in combinations(names, 2):
            for key in self._keys[one]:
                if key not in self._keys[other]:
                    continue
                if key not in self._defaults[one] or key not in self._defaults[other]:
                    raise self._error(
                        f"{key} is assigned to both {one} and {other}; change one of them"
                    )

    def _check_text_box(self, scope: Scope) -> None:
        """Raise InputError if a remapped key would type or edit text."""
        if scope.text_box is None:
            return
        taken = {bound.key for bound in Binding.make_bindings(scope.text_box)}
        for name in scope.commands():
            for key in self._keys[name]:
                if key not in self._defaults[name] and (key in taken or writes_character(key)):
                    raise self._error(
                        f"{display_key(key)} already edits text in {scope.text_box_name};"
                        f" choose another key for {name}"
                    )

    def _error(self, reason: str) -> InputError:
        return InputError(f"{self._where}: {reason}")


@runtime_checkable
class HasKeymap(Protocol):
    """An application with a keymap."""

    keymap: Keymap


def keymap_of(node: DOMNode) -> Keymap:
    """The keymap of the application that `node` belongs to."""
    app: object = node.app
    assert isinstance(app, HasKeymap)
    return app.keymap
