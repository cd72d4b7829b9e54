"""Presets: named system prompts with sampling settings, to apply to chats.

A chat gets a copy: changing or deleting a preset changes no chat. Settings are checked where they
are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from datastores.chats.history import History, storable
from datastores.errors import InputError
from datastores.storage.erasure import request_erasure


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset; `sampling` holds the settings that differ from the defaults, by name."""

    name: str
    system: str
    sampling: Mapping[str, object]


class Presets:
    """The presets stored with the chats of `history`.

    Every method raises StoreError if the file cannot be read or written.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self._store = history.store

    def all(self) -> list[Preset]:
        """Every preset, by name."""
        return self._presets("SELECT name, system, sampling FROM presets ORDER BY name")

    def get(self, name: str) -> Preset:
        """One preset.

        Raises:
            InputError: there is no preset of that name.
        """
        found = self._presets("SELECT name, system, sampling FROM presets WHERE name = ?", name)
        if not found:
            raise InputError(f"no preset {name!r}: save one with that name first")
        return found[0]

    def save(self, name: str, system: str, sampling: Mapping[str, object]) -> Preset:
        """Save a preset; it replaces one of the same name.

        Raises:
            InputError: the name is empty.
        """
        name = " ".join(storable(name).split())
        if not name:
            raise InputError("a preset needs a name")
        row = (name, storable(system), json.dumps(dict(sampling)))
        with self._store.writing() as db:
            db.conn.execute("INSERT OR REPLACE INTO presets VALUES (?, ?, ?)", row)
        return self.get(name)

    def apply(self, name: str, chat: int) -> None:
        """Give `chat` the system prompt and the settings of a preset.

        Raises:
            InputError: there is no such preset, or no such chat.
        """
        preset = self.get(name)
        self.history.set_system(chat, preset.system)
        self.history.set_sampling(chat, preset.sampling)

    def delete(self, name: str) -> None:
        """Delete a preset; chats keep their copies. `History.erase` must follow.

        Raises:
            InputError: there is no preset of that name.
        """
        with self._store.writing() as db:
            if not db.conn.execute("DELETE FROM presets WHERE name = ?", (name,)).rowcount:
                raise InputError(f"no preset {name!r}")
            request_erasure(db)

    def _presets(self, sql: str, *parameters: object) -> list[Preset]:
        return [
            Preset(row["name"], row["system"], json.loads(row["sampling"]))
            for row in self._store.rows(sql, parameters)
        ]
