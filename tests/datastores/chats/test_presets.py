"""Presets: kept by name, copied into chats."""

from __future__ import annotations

from contextlib import closing

import pytest

from datastores.chats.history import History
from datastores.chats.presets import Preset, Presets
from datastores.errors import InputError


def test_a_preset_is_kept_and_replaced_by_name(history: History) -> None:
    presets = Presets(history)
    presets.save("terse", "Be brief.", {"temperature": 0.1})
    presets.save(" poet \n", "Rhyme.", {})
    presets.save("terse", "Be very brief.", {"top_k": 3})
    with closing(history.new_connection()) as other_window:
        assert Presets(other_window).all() == [
            Preset("poet", "Rhyme.", {}),
            Preset("terse", "Be very brief.", {"top_k": 3}),
        ]


def test_a_chat_takes_a_copy(history: History) -> None:
    presets, chat = Presets(history), history.create_chat(system="Old.").id
    presets.save("terse", "Be brief.", {"temperature": 0.1})
    presets.apply("terse", chat)
    presets.delete("terse")
    kept = history.chat(chat)
    assert (kept.system, kept.sampling) == ("Be brief.", {"temperature": 0.1})
    assert presets.all() == []


def test_what_does_not_exist_is_named(history: History) -> None:
    presets = Presets(history)
    with pytest.raises(InputError, match="no preset 'terse'"):
        presets.apply("terse", history.create_chat().id)
    with pytest.raises(InputError, match="no preset 'terse'"):
        presets.delete("terse")
    with pytest.raises(InputError, match="needs a name"):
        presets.save(" \n", "x", {})
    presets.save("terse", "x", {})
    with pytest.raises(InputError, match="no chat 99"):
        presets.apply("terse", 99)
