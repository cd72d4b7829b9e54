"""Slash commands: parsing, completion, and errors for unknown ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.interface.commands.table import COMMANDS, FORMER_SLASH, SLASH, SLASH_NAMES
from app.interface.slash_commands import (
    SlashLine,
    SlashName,
    as_typed,
    completions,
    parse,
    unknown,
)

NAMES = [SlashName(name, "", "") for name in ("new", "new-private", "import", "imports", "model")]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("/new", SlashLine("new", "")),
        ("/New \n", SlashLine("New", "")),
        ("/system Be brief.\nAnd kind.", SlashLine("system", "Be brief.\nAnd kind.")),
        ("/etc/hosts what is it?", SlashLine("etc/hosts", "what is it?")),
        ("//usr/bin is what?", "/usr/bin is what?"),
        ("// a comment\nint x;", "// a comment\nint x;"),
        ("///", "///"),
        ("/* C */", "/* C */"),
        ("/ 2", "/ 2"),
        ("/", "/"),
        ("what is /new?", "what is /new?"),
        (" /new", " /new"),
    ],
)
def test_what_a_text_means(text: str, meaning: object) -> None:
    assert parse(text) == meaning


@given(st.text(max_size=20) | st.text("/ab \n", max_size=8))
def test_every_message_can_be_typed(message: str) -> None:
    assert parse(as_typed(message)) == message


@given(st.text(max_size=20))
def test_completions_contain_what_was_typed(text: str) -> None:
    for name in completions(text, NAMES):
        assert text[:1] == "/"
        assert text[1:].lower() in name.name


def test_prefix_matches_come_first() -> None:
    assert [one.name for one in completions("/mo", NAMES)] == ["model"]
    assert [one.name for one in completions("/p", NAMES)] == ["new-private", "import", "imports"]
    assert [one.name for one in completions("/i", NAMES)][:2] == ["import", "imports"]
    assert completions("/new x", NAMES) == []


def test_the_nearest_is_named() -> None:
    assert "Did you mean /import?" in unknown("impot", NAMES)
    assert "Did you mean /new?" in unknown("NEW!", NAMES)
    assert "Type / to list all" in unknown("zzz", NAMES)
    assert "To attach a file, type @/etc/hosts." in unknown("etc/hosts", NAMES)


def test_every_slash_name_is_one_command_and_can_be_typed() -> None:
    named = [command for command in COMMANDS if command.slash]
    assert len(SLASH) == len(named) == len(SLASH_NAMES)
    for command in named:
        assert parse(f"/{command.slash}") == SlashLine(command.slash, "")
        assert completions(f"/{command.slash}", SLASH_NAMES)[0].name == command.slash
        assert bool(command.argument) == (command.run_with is not None)


def test_former_slash_names_are_of_commands_and_shown_nowhere() -> None:
    assert set(FORMER_SLASH.values()) <= SLASH.keys()
    assert not FORMER_SLASH.keys() & SLASH.keys()
