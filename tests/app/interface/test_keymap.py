"""Every command can be remapped by its name, and errors are one line."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import permutations
from pathlib import Path
from pkgutil import walk_packages

import pytest
from textual import events
from textual.binding import Binding
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.widgets import OptionList, Static

import app.interface
from app.config import load_config
from app.interface.commands.help import Help
from app.interface.dialogs.search import ChatSearch
from app.interface.keymap import FORMER_IDS, Keymap
from app.interface.scopes import ALWAYS, SCOPES
from app.interface.screen import ChatScreen
from datastores.errors import InputError
from tests.app.interface.conftest import Make, ask, shown, type_in, until

NAMES = [name for scope in SCOPES for name in scope.commands()]


def with_bindings() -> Iterator[type[DOMNode]]:
    """All of our widgets and screens that bind keys."""
    for found in walk_packages(app.interface.__path__, "app.interface."):
        module = import_module(found.name)
        for value in vars(module).values():
            own = getattr(value, "__module__", "") == module.__name__
            if own and isinstance(value, type) and "BINDINGS" in vars(value):
                assert issubclass(value, DOMNode)
                yield value


def test_every_binding_has_a_name_that_is_listed() -> None:
    bound = [binding for owner in with_bindings() for binding in owner.BINDINGS]
    names = [binding.id for binding in Binding.make_bindings(bound)]
    assert len(names) > 50
    assert set(names) == set(NAMES)


def test_names_are_unique_and_none_is_a_table_in_which_another_stands() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert not [pair for pair in permutations(NAMES, 2) if pair[1].startswith(f"{pair[0]}.")]


def test_what_always_works_is_listed_with_the_same_keys() -> None:
    own = {binding.id: binding.key for binding in Binding.make_bindings(ALWAYS)}
    assert {name: SCOPES[0].commands()[name][1] for name in own if name} == {
        name: (key,) for name, key in own.items()
    }


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"chat.fnd": "ctrl+l"}, "unknown command 'chat.fnd'; did you mean chat.find?"),
        ({"zzz": "ctrl+l"}, "unknown command 'zzz'; the help (F1) lists them"),
        ({"chat.find": "ctl+l"}, "chat.find: 'ctl+l' is not a key"),
        ({"chat.find": "f99"}, "chat.find: 'f99' is not a key"),
        ({"chat.find": "alt+/"}, "chat.find: 'alt+/' is not a key"),
        ({"chat.find": "ctrl+n"}, "ctrl+n is assigned to both chat.new and chat.find"),
        (
            {"chat.find": "ctrl+l", "chat.new": "Ctrl+L"},
            "ctrl+l is assigned to both chat.new",
        ),
        ({"prompt.scroll-up": "f1"}, "f1 is assigned to both prompt.scroll-up and help"),
        ({"chat.find": "enter"}, "enter is assigned to both prompt.send and chat.find"),
        ({"chat.find": "ctrl+m"}, "enter is assigned to both prompt.send and chat.find"),
        ({"finder.up": "ctrl+q"}, "ctrl+q is assigned to both finder.up and quit"),
        ({"chat.find": "ctrl+e"}, "Ctrl+E already edits text in the prompt"),
        ({"chat.find": "x"}, "X already edits text in the prompt"),
        ({"finder.up": "slash"}, "Slash already edits text in the text box"),
    ],
)
def test_errors_in_keys_are_one_line(chosen: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as raised:
        Keymap(SCOPES, chosen, "config.toml: keys")
    assert str(raised.value).startswith("config.toml: keys: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_keys_are_understood_as_the_help_shows_them() -> None:
    written = "Ctrl+L, Alt+PgUp,F12 , alt+↑"
    keymap = Keymap(SCOPES, {"chat.find": written, "chat.newer": "", "chats.rename": "?"})
    assert keymap.overrides["chat.find"] == "ctrl+l,alt+pageup,f12,alt+up"
    assert keymap.display("chat.find") == "Ctrl+L, Alt+PgUp, F12, Alt+↑"
    assert keymap.display("chat.newer") == ""


def test_keys_of_former_names_are_those_of_the_present_ones() -> None:
    chosen = {"answer.sources": "f12", "sources.again": "a", "importing.sources": "ctrl+g"}
    keymap = Keymap(SCOPES, chosen)
    assert keymap.overrides == {
        "answer.citations": "f12",
        "imports.again": "a",
        "importing.imports": "ctrl+g",
    }
    assert set(FORMER_IDS.values()) <= set(NAMES)
    assert not FORMER_IDS.keys() & set(NAMES)


def test_two_commands_change_keys() -> None:
    keymap = Keymap(SCOPES, {"chat.find": "ctrl+n", "chat.new": "ctrl+f"})
    assert (keymap.display("chat.find"), keymap.display("chat.new")) == ("Ctrl+N", "Ctrl+F")


def test_names_with_dots_are_written_with_and_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keys]\nchat.find = "ctrl+l"\n"chat.new" = "f12"\nquit = "ctrl+x"\n')
    assert load_config(path).keys == {"chat.find": "ctrl+l", "chat.new": "f12", "quit": "ctrl+x"}
    path.write_text("[keys]\nchat.find = 3\n")
    with pytest.raises(InputError, match=r"keys\.chat.find must be a string, not 3"):
        load_config(path)


def test_no_key_of_ours_is_taken_from_writing() -> None:
    taken = {"ctrl+c", "up", "down", "pageup", "pagedown", "enter"}
    for scope in SCOPES:
        editing = {bound.key for bound in Binding.make_bindings(scope.text_box or [])}
        for _, keys in scope.commands().values():
            assert not (set(keys) & editing) - taken


async def test_the_chosen_keys_work_and_the_old_ones_do_not(stage: Make) -> None:
    made = stage(keys={"chat.find": "ctrl+l", "finder.close": "f12", "chat.rename": "f12"})
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+f")
        assert not isinstance(made.app.screen, ChatSearch)
        await pilot.press("ctrl+l")
        assert isinstance(made.app.screen, ChatSearch)
        await pilot.press("escape")
        assert isinstance(made.app.screen, ChatSearch)
        await pilot.press("f12")
        assert isinstance(made.app.screen, ChatScreen)


async def test_quitting_and_the_palette_move_everywhere(stage: Make) -> None:
    made = stage(keys={"quit": "f12", "palette": "f11"})
    async with made.app.run_test() as pilot:
        await pilot.press("ctrl+p", "ctrl+q", "ctrl+f", "ctrl+q")
        assert isinstance(made.app.screen, ChatSearch)
        await pilot.press("escape", "f11")
        assert isinstance(made.app.screen, CommandPalette)
        await pilot.press("f12")
        await until(pilot, lambda: made.app._exit)


async def test_what_the_screen_says_of_keys_is_true(stage: Make) -> None:
    chosen = {"help": "f12", "prompt.newline": "alt+enter", "panel": "", "page.close": "f12"}
    made = stage(keys=chosen)
    async with made.app.run_test(size=(120, 60)) as pilot:
        assert "Alt+Enter New line · F12 Help" in shown(made)
        await pilot.press("ctrl+p", *"detailed statistics")
        listed = made.app.screen.query_one(OptionList)
        await until(pilot, lambda: listed.option_count == 1)
        assert "F2" not in str(listed.get_option_at_index(0).prompt)
        await pilot.press("escape", "f12")
        assert isinstance(made.app.screen, Help)
        assert "“Details” shows details" in str(made.app.screen.query_one(Static).content)


async def test_alt_and_a_letter_writes_no_letter(stage: Make) -> None:
    """Terminals without a keyboard protocol report the letter too."""
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "copy?")
        for focused in (made.conversation.prompt, made.conversation.transcript):
            focused.focus()
            made.app.post_message(events.Key("alt+y", "y"))
            await until(pilot, lambda: "cp -r source/" in made.app.clipboard)
            assert made.conversation.prompt.text == ""
            made.app.copy_to_clipboard("")
            await until(pilot, lambda: made.app.clipboard == "")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["home", "x", "ctrl+e", "y"], "xone twoy"),
        (["ctrl+a", "x"], "xone two"),
        (["ctrl+w"], "one "),
        (["ctrl+u", "ctrl+z"], "one two"),
        (["x", "ctrl+z", "ctrl+y"], "one twox"),
        (["home", "ctrl+k"], ""),
    ],
)
async def test_the_prompt_is_edited_with_the_usual_keys(
    stage: Make, keys: list[str], text: str
) -> None:
    made = stage()
    async with made.app.run_test() as pilot:
        await ask(pilot, made, "before")
        await type_in(pilot, made, "one two")
        await pilot.press(*keys)
        assert made.conversation.prompt.text == text
